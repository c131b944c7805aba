"""Layer norm of 8192 by 4096 float32 whose weight and bias come from setup and are far from one and zero."""

import torch
import torch.nn.functional as F


def _columns(device):
    return 4096 if str(device).startswith("cuda") else 128


def inputs(seed, device):
    rows = 8192 if str(device).startswith("cuda") else 32
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(rows, _columns(device), generator=g, device=device),)


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {
        "weight": torch.randn(_columns(device), generator=g, device=device),
        "bias": torch.randn(_columns(device), generator=g, device=device),
    }


def run(state, x):
    return F.layer_norm(x, (x.shape[-1],), state["weight"], state["bias"], 1e-5)
