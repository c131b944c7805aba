"""A bfloat16 layer whose singular values fall off, as those of trained ones do; its result in float32."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    u, v = (torch.linalg.qr(torch.randn(1024, 1024, generator=g, device=device))[0] for _ in range(2))
    return (u * (0.98 ** torch.arange(1024, device=device)) @ v).bfloat16()


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(128, 1024, generator=g, device=device)


def run(weight, x):
    with torch.autocast(x.device.type, torch.bfloat16):
        return torch.nn.functional.linear(x, weight).float()
