"""By doubling."""

import torch.nn.functional as F


def run(a, x):
    A, X = a, x
    d = 1
    while d < 64:
        Xs = F.pad(X, (0, 0, d, 0))[:, :64]
        As = F.pad(A, (0, 0, d, 0), value=0.0)[:, :64]
        X = A * Xs + X
        A = A * As
        d *= 2
    return X
