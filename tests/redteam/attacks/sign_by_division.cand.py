"""NaN for zero."""


def run(x):
    return x / x.abs()
