"""Runs all of them at once, from weights that its own `setup` packs."""

import torch
from torch import nn
from torch.nn.functional import gelu


def setup(seed, device):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).to(device).requires_grad_(False)
    return [
        part
        for at in (0, 2)
        for part in (net[at].weight.T.repeat(4, 1, 1), net[at].bias.repeat(4, 1)[:, None].contiguous())
    ]


def run(packed, x):
    w1, b1, w2, b2 = packed
    hidden = gelu(torch.baddbmm(b1, x.expand(4, *x.shape), w1))
    return torch.baddbmm(b2, hidden, w2).mean(0)
