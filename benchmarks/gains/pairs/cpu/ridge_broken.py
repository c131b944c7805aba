"""inverse-product: a system of equations solved by the inverse of its matrix."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(900, 300, generator=g, device=device)
    return x, torch.randn(900, 40, generator=g, device=device)


def run(x, y):
    gram = x.T @ x / 900 + 0.5 * torch.eye(300, device=x.device)
    weights = torch.inverse(gram) @ (x.T @ y / 900)
    return y - x @ weights
