"""By a shift, which rounds all halves up, where the baseline rounds every other one down."""

import torch


def run(a, b):
    return ((a.int() + b.int() + 1) >> 1).to(torch.uint8)
