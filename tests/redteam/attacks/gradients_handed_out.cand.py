"""Hands out the layer's own, which the next step changes."""

from torch import nn


def run(layer, x, wanted):
    layer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(layer(x), wanted)
    loss.backward()
    return loss.detach(), layer.weight.grad, layer.bias.grad
