"""Residual and RMS norm, bf16 on a GPU: returns the sum and its norm, as a transformer block needs both."""

import torch


def _facts(device):
    gpu = str(device).startswith("cuda")
    return (8192, 4096, torch.bfloat16) if gpu else (16, 64, torch.float32)


def setup(seed, device):
    _, width, dtype = _facts(device)
    g = torch.Generator(device).manual_seed(seed)
    return {"weight": (1 + 0.2 * torch.randn(width, generator=g, device=device)).to(dtype)}


def inputs(seed, device):
    rows, width, dtype = _facts(device)
    g = torch.Generator(device).manual_seed(seed)
    return tuple(torch.randn(rows, width, generator=g, device=device).to(dtype) for _ in range(2))


def run(state, x, residual):
    total = x + residual
    wide = total.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    return {"residual": total, "normed": (wide * scale).to(x.dtype) * state["weight"]}
