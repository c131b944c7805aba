"""The same product from right to left: the narrow matrix keeps every intermediate result narrow."""


def run(a, b, v):
    return a @ (b @ v)
