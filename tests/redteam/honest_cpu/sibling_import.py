"""Vectorised with the help of a module that lies beside it."""

from _row_statistics import standardise


def run(x):
    return standardise(x)
