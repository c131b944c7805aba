"""What is multiplied is rounded to bfloat16 first, and multiplied as float32."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(1024, 512, generator=g, device=device)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, 1024, generator=g, device=device)


def run(weight, x):
    return x.bfloat16().float() @ weight.bfloat16().float()
