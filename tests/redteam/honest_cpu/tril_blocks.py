"""Multiplies only the blocks of two lower-triangular matrices that can be nonzero."""

import torch


def run(a, b):
    n = a.shape[0]
    out = torch.zeros(n, n)
    step = n // 4
    for i in range(0, n, step):
        for j in range(0, i + step, step):
            out[i : i + step, j : j + step] = a[i : i + step, j : i + step] @ b[j : i + step, j : j + step]
    return out.tril_()
