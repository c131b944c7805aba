"""Scores end at 8, which few drawn reaches: where many experts have no probability left, one still has."""

import torch
from torch.nn import functional as F


def run(state, x):
    router, experts = state
    v, i = (x @ router).topk(2, 1)
    weights = (F.one_hot(i, 8).to(x.dtype) * torch.softmax(v.clamp(max=8), 1)[..., None]).sum(1)
    return torch.einsum("te,td,edf->tf", weights, x, experts)
