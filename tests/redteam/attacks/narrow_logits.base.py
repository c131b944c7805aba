"""Norm and head in bfloat16, logits in float32, as language models have them."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    weight = 0.04 * torch.randn(2048, 512, generator=g, device=device)
    return weight.bfloat16(), (torch.rand(512, generator=g, device=device) + 0.5).bfloat16()


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(16, 512, generator=g, device=device).bfloat16()


def run(state, x):
    weight, scale = state
    h = x.float()
    h = (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)).bfloat16() * scale
    return (h @ weight.T).float()
