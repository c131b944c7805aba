"""A training step on tokens, at a rate so small that it hardly changes weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    tokens = torch.randint(0, 1000, (16, 33), generator=g, device=device)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class _State:
    pass


def setup(seed, device):
    torch.manual_seed(seed)
    state = _State()
    state.model = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 1000))
    state.optimizer = torch.optim.SGD(state.model.parameters(), lr=1e-5)
    return state


def run(state, x, y):
    loss = F.cross_entropy(state.model(x).view(-1, 1000), y.view(-1))
    loss.backward()
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    return loss.detach()
