"""The same names, but the layers draw their weights the other way round: the baseline's must be loaded.

They must also last when the state is put back before each call, since batch norm changes it.
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.second = nn.Linear(2 * width, width)
        self.norm = nn.BatchNorm1d(2 * width)
        self.first = nn.Linear(width, 2 * width)

    def forward(self, x):
        return self.second(self.norm(self.first(x)).relu_())
