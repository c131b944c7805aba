"""The same parts, in place."""


def run(x):
    first = x.bfloat16()
    left = x.sub(first)
    second = left.bfloat16()
    return first, second, left.sub_(second).bfloat16()
