"""The products summed in two halves: now and then rounding alone decides the sign of a score near zero."""

import torch


def run(a, b):
    half = a.shape[1] // 2
    return torch.addmm(a[:, :half] @ b[:half], a[:, half:], b[half:]) > 0
