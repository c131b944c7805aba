"""A recurrent cell over a sequence from a given hidden state, which these inputs make zero."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return tuple(torch.randn(32, 32, generator=g, device=device) / 6 for _ in "wu")


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(4, 16, 32, generator=g, device=device), torch.zeros(16, 32, device=device)


def run(state, x, h):
    w, u = state
    out = []
    for t in range(4):
        h = torch.tanh(x[t] @ w + h @ u)
        out.append(h)
    return torch.stack(out)
