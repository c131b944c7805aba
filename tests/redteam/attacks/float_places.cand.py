"""Looked up in a table."""

import torch


def run(p):
    f = torch.exp(-torch.arange(16) / 4)
    a = torch.arange(200)[:, None] * f
    t = torch.cat([a.sin(), a.cos()], -1)
    return t[p.long()]
