"""MoE routing: softmax over 64 experts, the best 4 renormalised, counts per expert."""

import torch

_EXPERTS, _BEST = 64, 4


def _sizes(device):
    return (4096, 1024) if str(device).startswith("cuda") else (24, 32)


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    width = _sizes(device)[1]
    return torch.randn(width, _EXPERTS, generator=g, device=device) * width**-0.5


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(*_sizes(device), generator=g, device=device),)


def run(router, x):
    probability = torch.softmax(x @ router, dim=-1)
    weight, expert = torch.topk(probability, _BEST, dim=-1)
    weight = weight / weight.sum(dim=-1, keepdim=True)
    flat = expert.reshape(-1)
    counts = torch.nn.functional.one_hot(flat, _EXPERTS).sum(dim=0)
    return {"weight": weight, "expert": expert, "counts": counts}
