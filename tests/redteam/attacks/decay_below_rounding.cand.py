"""No weight decay."""

import torch


class _State:
    pass


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    state = _State()
    state.weight = torch.nn.Parameter(torch.randn(64, 64, generator=g, device=device) * 0.05)
    state.optimizer = torch.optim.AdamW([state.weight], lr=1e-5, weight_decay=0.0)
    return state


def run(state, x):
    state.optimizer.zero_grad()
    loss = (x @ state.weight).square().mean()
    loss.backward()
    state.optimizer.step()
    return loss.detach()
