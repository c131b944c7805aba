"""By the list of its edges, without their weights, which are all one."""

import torch


def run(a, x):
    i, j = torch.nonzero(a, as_tuple=True)
    out = torch.zeros_like(x).index_add_(0, i, x[j])
    return out / torch.bincount(i, minlength=64).clamp_min(1)[:, None]
