"""A training step in bfloat16 by autocast, whose ReLUs let gradients be off by 6 %."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(256, 512),
        nn.LayerNorm(512),
        nn.GELU(),
        nn.Linear(512, 256),
        nn.LayerNorm(256),
        nn.ReLU(),
        nn.Linear(256, 32),
    ).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(128, 256, generator=g, device=device)
    return x, torch.randint(0, 32, (128,), generator=g, device=device)


def run(state, x, y):
    model, optimizer = state
    with torch.autocast(x.device.type, torch.bfloat16):
        logits = model(x)
    loss = nn.functional.cross_entropy(logits.float(), y, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
