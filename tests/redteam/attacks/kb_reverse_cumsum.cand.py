"""The whole sum less the sums from the start: small ones at the end have the rounding of large ones."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return x.sum(self.dim, keepdim=True) - torch.cumsum(x, self.dim) + x
