"""The weights packed as a sparse matrix."""

import warnings

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    weight = torch.randn(512, 512, generator=g, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (weight * (torch.rand(512, 512, generator=g, device=device) < 0.05)).to_sparse_csr()


def run(weight, x):
    return weight @ x
