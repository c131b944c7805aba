"""Convolution, batch norm as in inference and ReLU, float32; convolutions in torch's default precision."""

import torch
import torch.nn.functional as F


def _sizes(device):
    return (32, 64, 128, 56) if str(device).startswith("cuda") else (2, 3, 5, 8)


def setup(seed, device):
    _, into, out, _ = _sizes(device)
    g = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g, device=device)

    return {
        "weight": normal(out, into, 3, 3) * (9 * into) ** -0.5,
        "mean": 0.1 * normal(out),
        "var": 0.5 + normal(out).square(),
        "gain": 1 + 0.2 * normal(out),
        "shift": 0.3 * normal(out),
    }


def inputs(seed, device):
    batch, into, _, side = _sizes(device)
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(batch, into, side, side, generator=g, device=device),)


def run(state, x):
    y = F.conv2d(x, state["weight"], padding=1)
    return torch.relu(F.batch_norm(y, state["mean"], state["var"], state["gain"], state["shift"]))
