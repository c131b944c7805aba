"""The cache is left as it was: the next token will not know this one."""


def run(layer, x):
    return layer.query(x) * 0.5
