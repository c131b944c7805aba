"""A GPU MODE submission that squares and adds in one pass."""

import torch


def custom_kernel(data):
    matrix, scale = data
    return torch.linalg.vector_norm(matrix, dim=1).square_().mul_(scale)
