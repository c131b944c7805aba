"""hand-written-softmax: torch's own."""

import torch
from torch.nn import functional


def run(state, images, joints):
    model, grid, optimizer = state
    heat = torch.softmax(model(images).flatten(2), dim=-1)
    loss = functional.mse_loss(heat @ grid, joints)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach(), heat.detach().amax(dim=-1)
