"""What is learnt by the first weight is rounded to float16 before it is."""

from torch import nn


def run(state, x, y):
    model, optimizer = state
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    model[0].weight.grad.copy_(model[0].weight.grad.half())
    optimizer.step()
    return loss.detach()
