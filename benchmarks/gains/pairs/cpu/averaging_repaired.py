"""parameters-in-python: all tensors in two calls."""

import torch


def run(state, x):
    model, average, optimizer = state
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        kept = list(average.parameters())
        torch._foreach_mul_(kept, 0.99)
        torch._foreach_add_(kept, list(model.parameters()), alpha=0.01)
    return loss.detach()
