"""Honest: all parts in one product, so sums are added in another order."""

import torch.nn.functional as F


def run(x, w):
    return F.dropout(x.double() @ w.double(), 0.1)
