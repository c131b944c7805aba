"""The norm's own bias is never learnt."""

from torch import nn


def run(state, x, y):
    model, optimizer = state
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    model[1].bias.grad.zero_()
    optimizer.step()
    return loss.detach()
