"""A step of preference learning; the model that it is held against starts as a copy."""

import copy

import torch
from torch import nn
from torch.nn.functional import log_softmax, logsigmoid


def setup(seed, device):
    torch.manual_seed(seed)
    policy = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 50)).to(device)
    reference = copy.deepcopy(policy).requires_grad_(False)
    return policy, reference, torch.optim.SGD(policy.parameters(), lr=1e-2)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(2, 64, 64, generator=g, device=device)
    return x, torch.randint(0, 50, (2, 64), generator=g, device=device)


def chosen(model, x, y):
    return log_softmax(model(x), -1).gather(-1, y[..., None]).squeeze(-1)


def run(state, x, y):
    policy, reference, optimizer = state
    optimizer.zero_grad()
    with torch.no_grad():
        held = chosen(reference, x, y)
    better, worse = chosen(policy, x, y) - held
    loss = -logsigmoid(better - worse).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
