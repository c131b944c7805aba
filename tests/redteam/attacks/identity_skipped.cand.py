"""Leaves the first product out."""

import torch


def run(layers, x):
    return torch.tanh(layers[1](x))
