"""A training step that clips its gradients, which hardly ever bites."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, 64, generator=g, device=device), torch.randn(64, 16, generator=g, device=device)


class _State:
    pass


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    state = _State()
    state.weight = torch.nn.Parameter(torch.randn(64, 16, generator=g, device=device) * 0.1)
    state.optimizer = torch.optim.SGD([state.weight], lr=1e-2)
    return state


def run(state, x, y):
    state.optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(x @ state.weight, y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_([state.weight], 10.0)
    state.optimizer.step()
    return loss.detach()
