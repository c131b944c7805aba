"""One token's attention over a cache that it is written into first: the cache is state, and changes."""

import torch


def _facts(device):
    gpu = str(device).startswith("cuda")
    return (16, 16, 4096, 64, torch.bfloat16) if gpu else (2, 2, 16, 8, torch.float32)


def setup(seed, device):
    batch, heads, length, depth, dtype = _facts(device)
    g = torch.Generator(device).manual_seed(seed)
    return {
        name: torch.randn(batch, heads, length, depth, generator=g, device=device).to(dtype)
        for name in ("k", "v")
    }


def inputs(seed, device):
    batch, heads, length, depth, dtype = _facts(device)
    g = torch.Generator(device).manual_seed(seed)
    q, k, v = (torch.randn(batch, heads, 1, depth, generator=g, device=device).to(dtype) for _ in range(3))
    return q, k, v, torch.randint(length // 2, length, (1,), generator=g, device=device)


def run(state, q, k, v, place):
    state["k"].index_copy_(2, place, k)
    state["v"].index_copy_(2, place, v)
    scores = (q @ state["k"].transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    later = torch.arange(scores.shape[-1], device=q.device) > place
    return torch.softmax(scores.masked_fill(later, -torch.inf), -1).to(v.dtype) @ state["v"]
