"""Adds position vectors and returns them too, as a tensor of the caller's own."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {"position": torch.randn(4096, 512, generator=g, device=device)}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(2048, 512, generator=g, device=device),)


def run(state, x):
    position = state["position"][: x.shape[0]].clone()
    return x + position, position
