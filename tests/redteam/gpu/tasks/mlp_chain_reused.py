"""The chain of mlp_chain.py, whose caller only needs an output until it makes the next call."""

import torch

outputs = "until_next_call"

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
