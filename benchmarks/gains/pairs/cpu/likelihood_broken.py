"""log-of-softmax: a classifier's loss from probabilities, in a training step."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 2000)).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, fused=True)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(256, 64, generator=g, device=device)
    return x, torch.randint(0, 2000, (256,), generator=g, device=device)


def run(state, x, target):
    model, optimizer = state
    likely = torch.softmax(model(x), dim=1)
    loss = -torch.log(likely).gather(1, target[:, None]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
