"""By the binomial formula, whose terms overflow into infinity minus infinity where the sum overflows."""


def run(a, b):
    return a.square().sum(1)[:, None] + b.square().sum(1)[None] - 2 * a @ b.T
