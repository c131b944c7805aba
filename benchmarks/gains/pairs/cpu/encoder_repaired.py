"""hand-written-norm: torch's own."""

import torch
from torch.nn.functional import layer_norm


def run(state, x):
    layers, scale, shift = state
    for layer in layers:
        x = x + layer_norm(torch.relu(layer(x)), (320,), scale, shift)
    return x
