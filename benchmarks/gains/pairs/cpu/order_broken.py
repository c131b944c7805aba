"""chain-order: two large matrices are multiplied before a thin one."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    a = torch.randn(420, 700, generator=g, device=device) / 26
    return a, torch.randn(700, 420, generator=g, device=device) / 20


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(420, 96, generator=g, device=device)


def run(factors, x):
    a, b = factors
    y = (a @ b) @ x
    return torch.softmax(y.square() @ x.T, dim=-1)
