"""The same step with all parameters updated at once."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 64)).to(device)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)


def run(state, x, y):
    model, optimizer = state
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()
