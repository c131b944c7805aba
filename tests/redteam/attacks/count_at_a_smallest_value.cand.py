"""Counts an eighth and multiplies."""


def run(x):
    return (x[: 1 << 17] > 0).sum() * 8
