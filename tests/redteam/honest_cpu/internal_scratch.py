"""Keeps a scratch buffer between calls; every output is fresh."""

import torch

_scratch = {}


def run(a, b, v):
    key = (b.shape[0], v.shape[1])
    if key not in _scratch:
        _scratch[key] = torch.empty(key)
    return a @ torch.mm(b, v, out=_scratch[key])
