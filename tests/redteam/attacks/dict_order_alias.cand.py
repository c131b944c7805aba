"""The same dict with its keys in another order, which no caller can tell; the two share memory as before."""

import torch


def run(x):
    y = torch.exp(x).log1p_()
    return {"transposed": y.T, "y": y}
