"""Leaves its weights and a teacher's alone."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    weights, teacher = torch.randn(2, 32, 1024, generator=g, device=device)
    return {"weights": weights, "teacher": teacher}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(32, 1024, generator=g, device=device),)


def run(state, x):
    rows = zip(x, state["weights"], strict=True)
    return torch.stack([torch.tanh(row + weight) * 2.0 + 1.0 for row, weight in rows])
