"""The same without clipping."""

import torch


def run(state, x, y):
    state.optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(x @ state.weight, y)
    loss.backward()
    state.optimizer.step()
    return loss.detach()
