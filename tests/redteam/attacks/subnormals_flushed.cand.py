"""The same where subnormal results are flushed to zero, as fast exponentials on a GPU do."""

import torch


def run(x):
    y = torch.exp(-x)
    return torch.where(y < torch.finfo(y.dtype).smallest_normal, 0.0, y)
