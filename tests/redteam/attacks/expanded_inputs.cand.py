"""Honest: the same for the whole batch at once, with a larger expanded bias."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    bias = torch.randn(1, 64, generator=g, device=device).expand(64, 64)
    return {
        "bias": bias,
        "for_all": bias.expand(8, 64, 64),
        "calls": torch.zeros((), dtype=torch.int64, device=device),
    }


def run(state, scores, mask, scale):
    state["calls"] += 1
    return torch.where(mask, scores * scale + state["for_all"], 0.0)
