"""A layer that writes its keys into a cache, which is a plain attribute and no buffer."""

import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = torch.nn.Linear(128, 128), torch.nn.Linear(128, 128)
        self.cache = torch.zeros(4, 256, 128)


def setup(seed, device):
    torch.manual_seed(seed)
    return Layer().requires_grad_(False).to(device)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(4, 64, 128, generator=g, device=device),)


def run(layer, x):
    layer.cache[:, 128:192] = layer.key(x)
    return layer.query(x) * 0.5
