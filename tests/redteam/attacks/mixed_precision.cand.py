"""In float32."""

from torch import nn


def run(state, x, y):
    model, optimizer = state
    loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
