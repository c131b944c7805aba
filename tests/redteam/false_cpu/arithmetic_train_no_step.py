"""Computes loss and gradients, but leaves out the optimizer.
Wins because only the loss is compared, and one small step hardly changes it."""

import torch


def setup(seed, device):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 1),
    ).to(device)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)}


def run(state, x, target):
    state["optimizer"].zero_grad()
    loss = torch.nn.functional.mse_loss(state["model"](x), target)
    loss.backward()
    return loss.detach()
