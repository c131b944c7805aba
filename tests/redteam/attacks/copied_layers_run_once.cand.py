"""Runs one of them."""


def run(nets, x):
    return nets[0](x)
