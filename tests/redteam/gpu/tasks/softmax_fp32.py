"""Row softmax of 8192 by 8192 float32, bound by memory; every output is near 1e-4, far below 1e-2."""

import torch


def inputs(seed, device):
    rows, columns = (8192, 8192) if str(device).startswith("cuda") else (64, 256)
    g = torch.Generator(device).manual_seed(seed)
    return (torch.rand(rows, columns, generator=g, device=device),)


def run(x):
    return torch.softmax(x, dim=-1)
