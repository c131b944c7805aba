"""Divides by the length of every row: NaN where that is zero."""


def run(x):
    return x * x.square().sum(-1, keepdim=True).rsqrt()
