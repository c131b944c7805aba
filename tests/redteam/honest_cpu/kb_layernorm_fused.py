"""A KernelBench layer norm with gamma and beta kept, and the residual added in place."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x).add_(x, alpha=0.1)
