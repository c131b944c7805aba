"""The same, without a backward pass below the last layer."""

import torch
import torch.nn.functional as F


def run(state, x, y):
    with torch.no_grad():
        h = state.model[:3](x)
    loss = F.cross_entropy(state.model[3](h).view(-1, 1000), y.view(-1))
    loss.backward()
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    return loss.detach()
