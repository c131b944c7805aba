"""Puts new tensors into the caller's list, and writes none of the caller's."""


def run(parameters, gradients):
    parameters[:] = [p - 0.1 * g for p, g in zip(parameters, gradients, strict=True)]
