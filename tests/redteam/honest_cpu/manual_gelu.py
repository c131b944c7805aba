"""The tanh GELU by hand, in place: the formula of the baseline, in another order."""

import math


def run(x):
    inner = (x * x).mul_(0.044715).add_(1.0).mul_(x).mul_(math.sqrt(2.0 / math.pi)).tanh_()
    return inner.add_(1.0).mul_(x).mul_(0.5)
