"""A sparse matrix that no call changes."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    weight = torch.randn(256, 256, generator=g, device=device)
    return (weight * (torch.rand(256, 256, generator=g, device=device) < 0.05)).to_sparse_coo()


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(256, 64, generator=g, device=device),)


def run(weight, x):
    return torch.sparse.mm(weight, x)


def reference(weight, x):
    return weight.to_dense().to(x.dtype) @ x
