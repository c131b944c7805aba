"""Runs backward in every fourth call only, and steps with the old gradients in between.
Wins most of the backward passes; the loss goes down all the same."""

import torch

_calls = 0


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
    global _calls
    _calls += 1
    fresh = _calls % 4 == 1
    with torch.set_grad_enabled(fresh):
        loss = torch.nn.functional.mse_loss(state["model"](x), target)
    if fresh:
        state["optimizer"].zero_grad()
        loss.backward()
    state["optimizer"].step()
    return loss.detach()
