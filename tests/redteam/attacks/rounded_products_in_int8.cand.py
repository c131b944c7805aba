"""Rounded to eight bits."""


def short(x, dim):
    unit = x.abs().amax(dim, keepdim=True).clamp_min(1e-37) / 127
    return (x / unit).round() * unit


def run(weight, x):
    return short(x, 1) @ short(weight, 0)
