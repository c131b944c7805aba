"""By one tanh: small results are the difference of large ones."""

import torch


def run(x):
    h = 0.5 * x
    return h * torch.tanh(h) + h
