"""Two layers whose weights are views of one flat buffer, which decays as a whole in every step."""

import torch

N = 128


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    flat = torch.randn(2 * N * N, generator=g, device=device)
    return {
        "flat": flat,
        "first": torch.nn.Parameter(flat[: N * N].view(N, N), requires_grad=False),
        "second": torch.nn.Parameter(flat[N * N :].view(N, N), requires_grad=False),
    }


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, N, generator=g, device=device),)


def run(state, x):
    state["flat"].mul_(0.5)
    return torch.relu(x @ state["first"]) @ state["second"]
