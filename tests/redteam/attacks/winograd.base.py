"""A convolution of 3 by 3."""

import torch
import torch.nn.functional as F


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(2, 8, 18, 18, generator=g, device=device), torch.randn(
        12, 8, 3, 3, generator=g, device=device
    )


def run(x, w):
    return F.conv2d(x, w)
