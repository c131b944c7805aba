"""A gated layer in bfloat16."""

import torch
import torch.nn.functional as F


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (
        torch.randn(32, 128, generator=g, device=device).to(torch.bfloat16),
        torch.randn(128, 256, generator=g, device=device).to(torch.bfloat16) / 11,
        torch.randn(128, 256, generator=g, device=device).to(torch.bfloat16) / 11,
        torch.randn(256, 128, generator=g, device=device).to(torch.bfloat16) / 16,
    )


def run(x, a, b, c):
    return (F.silu(x @ a) * (x @ b)) @ c
