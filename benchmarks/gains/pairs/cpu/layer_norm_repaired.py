"""hand-written-norm: torch's own layer normalisation."""

import torch
from torch.nn.functional import layer_norm


def run(state, x):
    model, optimizer = state
    for layer in model:
        x = layer_norm(layer(x), (256,))
    loss = torch.logsumexp(x, dim=-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
