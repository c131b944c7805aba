"""One product with the three weights side by side, and its thirds.

Views of one buffer that share no element. Writing into one of them changes nothing in the others.
"""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    parts = [torch.randn(256, 256, generator=g, device=device) / 16 for _ in range(3)]
    return {"qkv": torch.cat(parts, dim=1)}


def run(state, x):
    return (x @ state["qkv"]).chunk(3, dim=1)
