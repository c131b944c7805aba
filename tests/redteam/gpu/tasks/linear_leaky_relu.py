"""A float32 linear layer with bias and leaky ReLU, in torch's default precision."""

import torch


def _sizes(device):
    return (1500, 1024, 1536) if str(device).startswith("cuda") else (24, 48, 40)


def setup(seed, device):
    _, k, n = _sizes(device)
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(n, k, generator=g, device=device) * k**-0.5, torch.randn(n, generator=g, device=device)


def inputs(seed, device):
    m, k, _ = _sizes(device)
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(m, k, generator=g, device=device),)


def run(state, x):
    weight, bias = state
    y = x @ weight.t() + bias
    return torch.where(y > 0, y, 0.01 * y)
