"""Applies relu in place and returns the input.
Wins the cost of fresh memory; the caller's input is gone."""


def run(x):
    return x.relu_()
