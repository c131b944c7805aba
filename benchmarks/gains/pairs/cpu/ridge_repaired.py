"""inverse-product: solved."""

import torch


def run(x, y):
    gram = x.T @ x / 900 + 0.5 * torch.eye(300, device=x.device)
    weights = torch.linalg.solve(gram, x.T @ y / 900)
    return y - x @ weights
