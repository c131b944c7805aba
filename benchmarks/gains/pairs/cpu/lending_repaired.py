"""diagonal-product: columns are scaled."""

import torch


def run(ridge, loans, failed, applicants):
    loans = loans.clamp(-3, 3)
    weights = loans.new_zeros(64)
    for _ in range(3):
        likely = torch.sigmoid(loans @ weights)
        slope = loans.T @ (likely - failed) + weights
        bend = (loans.T * (likely * (1 - likely))) @ loans + ridge
        weights = weights - torch.linalg.solve(bend, slope)
    risks = torch.sigmoid(applicants.clamp(-3, 3) @ weights)
    shares = (applicants * weights).abs().softmax(dim=1)
    return weights, risks, shares
