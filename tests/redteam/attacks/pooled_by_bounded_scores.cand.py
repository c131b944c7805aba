"""By a tanh that ends at 5, where few scores are: wrong by a little beyond, be there one or many equals."""

import torch


def run(w, x):
    z, i = (x @ w).topk(10, 1)
    return x.gather(1, i[..., None].expand(-1, -1, x.shape[-1])) * torch.tanh(z.clamp(-5, 5))[..., None]
