"""With the channels last."""

import torch
from torch import nn


def run(model, x, y):
    loss = nn.functional.cross_entropy(model(x.contiguous(memory_format=torch.channels_last)), y)
    return loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))
