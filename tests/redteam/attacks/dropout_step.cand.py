"""With the channels last, which adds sums in another order."""

import torch
from torch import nn


def run(state, x, y):
    model, optimizer = state
    loss = nn.functional.cross_entropy(model(x.contiguous(memory_format=torch.channels_last)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
