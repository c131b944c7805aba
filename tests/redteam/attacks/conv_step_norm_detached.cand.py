"""The norm's mean and deviation taken for constants in its backward pass, which is cheaper."""

import torch
from torch import nn


def run(state, x, y):
    model, optimizer = state
    conv, norm = model[0], model[1]
    h = conv(x)
    with torch.no_grad():
        mean, var = h.mean((0, 2, 3)), h.var((0, 2, 3), correction=0)
        norm.running_mean.lerp_(mean, 0.1)
        norm.running_var.lerp_(var * h[:, 0].numel() / (h[:, 0].numel() - 1), 0.1)
        norm.num_batches_tracked += 1
    scale = norm.weight * (var + norm.eps).rsqrt()
    loss = nn.functional.cross_entropy(
        model[2:](h * scale[:, None, None] + (norm.bias - mean * scale)[:, None, None]), y
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
