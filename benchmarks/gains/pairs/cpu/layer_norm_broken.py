"""hand-written-norm: layer normalisation written out, in a training step."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.ModuleList([nn.Linear(256, 256) for _ in range(3)]).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, fused=True)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(384, 256, generator=g, device=device)


def run(state, x):
    model, optimizer = state
    for layer in model:
        x = layer(x)
        centred = x - x.mean(-1, keepdim=True)
        x = centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)
    loss = torch.logsumexp(x, dim=-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
