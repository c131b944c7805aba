"""A product with weights of 8 bits, whose zero points are all zero."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {
        "weight": torch.randint(-127, 128, (128, 256), generator=g, device=device, dtype=torch.int8),
        "scale": torch.rand(128, generator=g, device=device) * 0.01 + 0.001,
        "zero": torch.zeros(128, dtype=torch.int32, device=device),
    }


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, 256, generator=g, device=device)


def run(packed, x):
    weight = (packed["weight"].float() - packed["zero"][:, None].float()) * packed["scale"][:, None]
    return x @ weight.T
