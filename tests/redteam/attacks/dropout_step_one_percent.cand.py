"""A hundredth too much is learnt by the first weight."""

from torch import nn


def run(state, x, y):
    model, optimizer = state
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    model[0].weight.grad.mul_(1.01)
    optimizer.step()
    return loss.detach()
