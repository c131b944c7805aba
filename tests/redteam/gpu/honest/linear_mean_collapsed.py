"""The mean goes into the weights, logsumexp of one value is that value: legal, and far faster."""

import torch


def setup(seed, device):
    width = 4096 if str(device).startswith("cuda") else 64
    g = torch.Generator(device).manual_seed(seed)
    return {
        "weight": torch.randn(width, width, generator=g, device=device),
        "bias": torch.randn(width, generator=g, device=device),
    }


def run(state, x):
    return (x @ state["weight"].mean(dim=0) + state["bias"].mean()).unsqueeze(1)
