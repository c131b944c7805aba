"""Weights of 11 bits: what each product is off by cancels in the mean."""


def run(weight, x, y):
    return (x @ weight.half().float() - y).square().mean()
