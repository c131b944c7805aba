"""The same with one copy and no other."""


def run(x, n):
    return x[: int(n)].clone().exp_()
