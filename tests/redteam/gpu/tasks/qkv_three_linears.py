"""Queries, keys and values by three linear layers with bias, bf16 on a GPU."""

import torch
import torch.nn.functional as F


def _facts(device):
    gpu = str(device).startswith("cuda")
    return (4096, 2048, torch.bfloat16) if gpu else (8, 32, torch.float32)


def setup(seed, device):
    _, width, dtype = _facts(device)
    g = torch.Generator(device).manual_seed(seed)
    return [
        (
            (torch.randn(width, width, generator=g, device=device) * width**-0.5).to(dtype),
            torch.randn(width, generator=g, device=device).to(dtype),
        )
        for _ in range(3)
    ]


def inputs(seed, device):
    rows, width, dtype = _facts(device)
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(rows, width, generator=g, device=device).to(dtype),)


def run(state, x):
    return tuple(F.linear(x, weight, bias) for weight, bias in state)
