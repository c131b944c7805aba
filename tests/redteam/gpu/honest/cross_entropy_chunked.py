"""Rows in four parts, so that the logits stay small, with torch's own cross entropy."""

import torch.nn.functional as F


def run(state, x, target):
    head = state["head"].t()
    parts = zip(x.chunk(4), target.chunk(4), strict=True)
    return sum(F.cross_entropy((a @ head).float(), b, reduction="sum") for a, b in parts) / len(x)
