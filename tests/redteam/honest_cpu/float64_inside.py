"""Accumulates in float64: slower, and closer to the truth than the baseline."""


def run(x):
    return x.double().mean(dim=-1).float()
