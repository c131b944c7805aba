"""Updates a running mean and leaves a teacher's weights alone."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    weights, teacher = torch.randn(2, 64, 256, generator=g, device=device)
    return {"mean": torch.zeros(256, device=device), "weights": weights, "teacher": teacher}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 256, generator=g, device=device),)


def run(state, x):
    y = torch.tanh(x + state["weights"]) * 2.0 + 1.0
    state["mean"].mul_(0.9).add_(0.1 * y.mean(dim=0))
    return y
