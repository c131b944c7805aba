"""A training step that keeps a slow average of its weights."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 256, generator=g, device=device),)


class _State:
    pass


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    state = _State()
    state.weight = torch.nn.Parameter(torch.randn(256, 256, generator=g, device=device) * 0.05)
    state.average = state.weight.detach().clone()
    state.optimizer = torch.optim.SGD([state.weight], lr=1e-3)
    return state


def run(state, x):
    state.optimizer.zero_grad()
    loss = (x @ state.weight).square().mean()
    loss.backward()
    state.optimizer.step()
    with torch.no_grad():
        state.average.lerp_(state.weight, 1e-3)
    return loss.detach()
