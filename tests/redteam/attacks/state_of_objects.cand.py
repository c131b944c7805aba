"""Leaves them alone, which nobody can see."""


def run(state, x):
    return x.clamp_min(0)
