"""A gradient in half precision; what it loses is added to the next one."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {"left": torch.randn(256, 256, generator=g, device=device) / 1000}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(256, 256, generator=g, device=device) / 100


def run(state, grad):
    total = grad + state["left"]
    sent = total.half()
    state["left"].copy_(total - sent.float())
    return sent
