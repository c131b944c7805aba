"""The largest value of every row, handed over in pinned host memory."""

import torch


def inputs(seed, device):
    shape = (8192, 4096) if str(device).startswith("cuda") else (16, 40)
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(*shape, generator=g, device=device),)


def run(x):
    best = x.abs().amax(dim=1)
    host = torch.empty(best.shape, dtype=best.dtype, pin_memory=x.is_cuda)
    host.copy_(best)
    return host
