"""Rotary embedding of queries and keys by complex products, float32."""

import torch


def _sizes(device):
    return (4, 2048, 16, 128) if str(device).startswith("cuda") else (2, 12, 2, 8)


def setup(seed, device):
    _, length, _, depth = _sizes(device)
    steps = torch.arange(length, device=device).float()
    rates = 10000.0 ** (-torch.arange(0, depth, 2, device=device).float() / depth)
    angles = torch.outer(steps, rates)
    return {"turns": torch.polar(torch.ones_like(angles), angles)}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return tuple(torch.randn(*_sizes(device), generator=g, device=device) for _ in range(2))


def run(state, q, k):
    def turned(x):
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * state["turns"][:, None]).flatten(-2)

    return turned(q), turned(k)
