"""Grey values, rounded: one pixel in a thousand is half a number, but for the weights' rounding."""

import torch


def inputs(seed, device):
    return (
        torch.randint(
            0, 256, (3, 128, 128), generator=torch.Generator(device).manual_seed(seed), dtype=torch.uint8
        ),
    )


def run(x):
    f = x.float()
    return (0.299 * f[0] + 0.587 * f[1] + 0.114 * f[2]).round().to(torch.uint8)
