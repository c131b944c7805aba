"""chain-order: two large matrices are multiplied before a thin one."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    a = torch.randn(6144, 6144, generator=g, device=device) / 78
    return a, torch.randn(6144, 6144, generator=g, device=device) / 78


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(6144, 512, generator=g, device=device)


def run(factors, x):
    a, b = factors
    y = (a @ b) @ x
    return torch.tanh(y) @ x.T
