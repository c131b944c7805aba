"""Sixteen small linear layers with ReLU, float32, 128 tokens of 512: dozens of launches of a few µs each."""

import torch

_LAYERS = 16


def _width(device):
    return 512 if str(device).startswith("cuda") else 32


def inputs(seed, device):
    width = _width(device)
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(width // 4, width, generator=g, device=device),)


def setup(seed, device):
    width = _width(device)
    g = torch.Generator(device).manual_seed(seed)
    scale = (2.0 / width) ** 0.5  # keeps the activations' size over the layers
    return [torch.randn(width, width, generator=g, device=device) * scale for _ in range(_LAYERS)]


def run(state, x):
    for weight in state:
        x = torch.relu(x @ weight)
    return x
