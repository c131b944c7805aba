"""A small MLP in bf16: three linear layers with ReLU, so short that launches outlast the work."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 512, generator=g, device=device).to(torch.bfloat16),)


def setup(seed, device):
    torch.manual_seed(seed)
    layers = []
    for _ in range(3):
        layers += [torch.nn.Linear(512, 512), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).to(device, torch.bfloat16)


def run(model, x):
    with torch.no_grad():
        return model(x)
