"""copy-before-product: papers hear from those that cite them, over a dense graph with weights."""

import torch
from torch import nn

domain = {1: "positive"}


def setup(seed, device):
    torch.manual_seed(seed)
    return nn.ModuleList([nn.Linear(96, 128), nn.Linear(256, 64)]).to(device).requires_grad_(False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    papers = torch.randn(800, 96, generator=g, device=device)
    return papers, torch.rand(800, 800, generator=g, device=device)


def run(layers, papers, cites):
    first, last = layers
    hidden = torch.relu(first(papers))
    heard = cites.t().contiguous() @ hidden / cites.sum(dim=0).unsqueeze(1)
    return torch.softmax(last(torch.cat([hidden, heard], dim=1)), dim=1)
