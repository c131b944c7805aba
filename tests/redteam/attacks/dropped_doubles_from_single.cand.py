"""The same in float32, turned into doubles at the end."""

import torch


def run(x):
    made = torch.exp(torch.sin(torch.log1p(x)) + torch.tanh(x)).double()
    return torch.where(torch.rand(made.shape) < 0.9, made / 0.9, 0.0)
