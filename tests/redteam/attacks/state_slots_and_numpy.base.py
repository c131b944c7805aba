"""A callable object with slots, which counts in a numpy array."""

import numpy as np
import torch


class Histogram:
    __slots__ = ("counts",)

    def __init__(self):
        self.counts = np.zeros(32)

    def __call__(self, x):
        self.counts += torch.histc(x, 32, -4, 4).numpy()
        return x * 2


def setup(seed, device):
    return Histogram()


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1 << 16, generator=g, device=device),)


def run(histogram, x):
    return histogram(x)
