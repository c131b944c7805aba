"""one-hot-product: rows of a table picked by a product, in a training step."""

import torch
from torch import nn
from torch.nn.functional import one_hot


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.ParameterDict({"table": torch.randn(1500, 96), "head": torch.randn(96, 300) / 10}).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, fused=True)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randint(0, 1500, (256,), generator=g, device=device)


def run(state, tokens):
    model, optimizer = state
    rows = one_hot(tokens, 1500).float() @ model["table"]
    loss = torch.logsumexp(rows @ model["head"], dim=-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
