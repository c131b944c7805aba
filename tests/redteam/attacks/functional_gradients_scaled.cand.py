"""A hundredth too much in one."""

import torch
from torch import nn


def run(model, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    first, *rest = torch.autograd.grad(loss, list(model.parameters()))
    return loss.detach(), first * 1.01, *rest
