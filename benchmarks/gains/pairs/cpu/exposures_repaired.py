"""einsum-order: loadings and shocks first, which are narrow together."""

import torch


def run(state, holdings):
    loadings, shocks = state
    positions = torch.tanh(holdings)
    positions = positions - positions.mean(dim=1, keepdim=True)
    sensitivities = torch.einsum("af,fs->as", loadings, shocks)
    results = torch.einsum("da,as->ds", positions, sensitivities)
    turnover = positions.diff(dim=0).abs().sum(dim=1)
    return results, results.std(dim=0), results.amin(dim=0), turnover
