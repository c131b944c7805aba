"""One SGD step with momentum: returns the loss, changes module and optimizer in the state."""

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


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, 256, generator=g, device=device), torch.randn(64, 1, generator=g, device=device)


def run(state, x, target):
    state["optimizer"].zero_grad()
    loss = torch.nn.functional.mse_loss(state["model"](x), target)
    loss.backward()
    state["optimizer"].step()
    return loss.detach()
