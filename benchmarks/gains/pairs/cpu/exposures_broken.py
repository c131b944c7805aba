"""einsum-order: a fund's daily positions, priced under a few market shocks through their factor loadings."""

import torch


def setup(seed, device):
    torch.manual_seed(seed)
    loadings = torch.randn(1100, 128, device=device) / 8
    return loadings, torch.randn(128, 10, device=device) / 10


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(640, 1100, generator=g, device=device)


def run(state, holdings):
    loadings, shocks = state
    positions = torch.tanh(holdings)
    positions = positions - positions.mean(dim=1, keepdim=True)
    results = torch.einsum("da,af,fs->ds", positions, loadings, shocks)
    turnover = positions.diff(dim=0).abs().sum(dim=1)
    return results, results.std(dim=0), results.amin(dim=0), turnover
