"""Every call returns the same buffer, so that a caller's earlier result changes under its hands."""

import torch

_out = {}


def run(x):
    key = (x.shape, x.dtype)
    if key not in _out:
        _out[key] = torch.empty_like(x)
    return torch.ops.aten.silu.out(x, out=_out[key])
