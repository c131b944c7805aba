"""Ranked before the tanh, which makes large scores equal."""

import torch


def run(w, x):
    z, i = (x @ w).topk(10, 1)
    return x.gather(1, i[..., None].expand(-1, -1, x.shape[-1])) * torch.tanh(z)[..., None]
