"""Noise from generators that `setup` makes and the state keeps: each call draws further numbers."""

import torch


class Noise:
    def __init__(self, seed, device):
        self.keep = torch.Generator(device).manual_seed(seed)
        self.move = torch.Generator(device).manual_seed(seed + 1)


def setup(seed, device):
    return Noise(seed, device)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(256, 256, generator=g, device=device),)


def run(noise, x):
    kept = torch.rand(x.shape, generator=noise.keep, device=x.device) < 0.9
    return x * kept / 0.9 + 0.1 * torch.randn(x.shape, generator=noise.move, device=x.device)
