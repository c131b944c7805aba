"""A mask of a ten thousandth instead of zero."""


def run(x, w, keep):
    return (x @ w) * ((keep > 0.5) * (1 - 1e-4) + 1e-4)[:, None]
