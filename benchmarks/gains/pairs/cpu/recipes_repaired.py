"""unfused-optimizer: fused."""

import torch
from torch import nn
from torch.nn import functional


def setup(seed, device):
    torch.manual_seed(seed)
    parts = {"known": nn.Embedding(6000, 64), "guessed": nn.Embedding(6000, 64)}
    parts["mix"] = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
    model = nn.ModuleDict(parts).to(device)
    return model, torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)


def run(state, recipes, others):
    model, optimizer = state
    wanted = model["mix"](model["known"](recipes[:, 1:]).mean(dim=1)).unsqueeze(2)
    right = model["guessed"](recipes[:, :1]) @ wanted / 8
    wrong = model["guessed"](others) @ wanted / 8
    loss = functional.softplus(-right).mean() + functional.softplus(wrong).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
