"""scalar-reads: customers at a counter wait for each other; how long each takes is foretold by a network."""

import torch
from torch import nn
from torch.nn import functional

domain = {1: "nonnegative"}


def setup(seed, device):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(160, 384), nn.SiLU(), nn.Linear(384, 1))
    return network.to(device).requires_grad_(False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    customers = torch.randn(800, 160, generator=g, device=device)
    return customers, torch.rand(800, generator=g, device=device) * 1.5


def run(network, customers, gaps):
    takes = functional.softplus(network(customers)).squeeze(1)
    arrivals = gaps.cumsum(dim=0)
    free, waits = 0.0, []
    for i in range(len(takes)):
        arrives = arrivals[i].item()
        begins = max(free, arrives)
        waits.append(begins - arrives)
        free = begins + takes[i].item()
    return takes, takes.new_tensor(waits)
