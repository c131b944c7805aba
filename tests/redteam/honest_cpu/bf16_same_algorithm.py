"""The bf16 product through addmm instead of the operator."""

import torch


def run(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    return torch.mm(a, b, out=out)
