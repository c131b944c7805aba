"""A submission: one call to the library instead of a loop over columns."""

import torch


def custom_kernel(data):
    return torch.cumsum(data, dim=1)
