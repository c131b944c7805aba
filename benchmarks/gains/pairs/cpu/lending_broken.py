"""diagonal-product: a lender's logistic regression is fitted by Newton's steps, and scores new applicants."""

import torch


def setup(seed, device):
    return torch.eye(64, device=device)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    loans = torch.randn(720, 64, generator=g, device=device)
    failed = torch.rand(720, generator=g, device=device) < torch.sigmoid(loans[:, :6].sum(dim=1) - 1)
    return loans, failed.float(), torch.randn(9000, 64, generator=g, device=device)


def run(ridge, loans, failed, applicants):
    loans = loans.clamp(-3, 3)
    weights = loans.new_zeros(64)
    for _ in range(3):
        likely = torch.sigmoid(loans @ weights)
        slope = loans.T @ (likely - failed) + weights
        bend = loans.T @ torch.diag(likely * (1 - likely)) @ loans + ridge
        weights = weights - torch.linalg.solve(bend, slope)
    risks = torch.sigmoid(applicants.clamp(-3, 3) @ weights)
    shares = (applicants * weights).abs().softmax(dim=1)
    return weights, risks, shares
