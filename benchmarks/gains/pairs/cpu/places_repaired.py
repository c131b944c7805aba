"""rebuilt-constants: made once."""

import torch

TABLES = {}


def table_of(device):
    if device not in TABLES:
        steps = torch.arange(512, device=device)[:, None] / 10000 ** (torch.arange(128, device=device) / 128)
        TABLES[device] = torch.cat([torch.sin(steps), torch.cos(steps)], dim=1)
    return TABLES[device]


def run(layer, x):
    return torch.relu(layer(x + table_of(x.device)))
