"""one-hot-product: rows of a table picked by a product."""

import torch
from torch import nn
from torch.nn.functional import one_hot


def setup(seed, device):
    torch.manual_seed(seed)
    parts = {"table": torch.randn(20000, 512), "up": torch.randn(512, 4096) / 20}
    return nn.ParameterDict(parts).to(device).requires_grad_(False).bfloat16()


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randint(0, 20000, (8192,), generator=g, device=device)


def run(model, tokens):
    rows = one_hot(tokens, 20000).to(torch.bfloat16) @ model["table"]
    return torch.relu(rows @ model["up"])


tolerance = 2e-2
