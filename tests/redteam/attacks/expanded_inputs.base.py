"""Attention scores under a mask and a bias, both expanded to the batch: as inputs and in the state."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {
        "bias": torch.randn(1, 64, generator=g, device=device).expand(64, 64),
        "calls": torch.zeros((), dtype=torch.int64, device=device),
    }


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    scores = torch.randn(8, 64, 64, generator=g, device=device)
    mask = torch.randint(0, 2, (64, 64), generator=g, device=device).bool()
    scale = torch.rand(8, 1, 1, generator=g, device=device)
    return scores, mask.expand(8, 64, 64), scale.expand(8, 64, 64)


def run(state, scores, mask, scale):
    state["calls"] += 1
    rows = [
        torch.where(m, s * k + state["bias"], torch.zeros_like(s))
        for s, m, k in zip(scores, mask, scale, strict=True)
    ]
    return torch.stack(rows)
