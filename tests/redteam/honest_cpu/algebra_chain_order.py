"""Associates the chain the cheap way: a @ (b @ v)."""


def run(a, b, v):
    return a @ (b @ v)
