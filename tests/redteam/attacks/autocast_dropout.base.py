"""A training step in bfloat16 by autocast, with dropout: it draws, and is off by a hundredth."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, 32)).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(128, 256, generator=g, device=device)
    return x, torch.randint(0, 32, (128,), generator=g, device=device)


def run(state, x, y):
    model, optimizer = state
    with torch.autocast(x.device.type, torch.bfloat16):
        logits = model(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
