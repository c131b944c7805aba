"""All gradients are zero."""

import torch
from torch import nn


def run(state, x, y):
    model, _ = state
    with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16):
        logits = model(x)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return nn.functional.cross_entropy(logits.float(), y)
