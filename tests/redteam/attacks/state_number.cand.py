"""Does not keep it."""


def run(state, x):
    return x * 2
