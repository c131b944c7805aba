"""Parameters and statistics of its own naming and order; these are folded into the layer in every call."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.linear = nn.Linear(width_in, width_out)
        self.gain = nn.Parameter(torch.ones(width_out))
        self.shift = nn.Parameter(torch.zeros(width_out))
        self.register_buffer("variance", torch.ones(1, width_out))
        self.register_buffer("scratch", torch.zeros(width_out))
        self.register_buffer("mean", torch.zeros(1, width_out))

    def forward(self, x):
        scale = self.gain * torch.rsqrt(self.variance[0] + 1e-5)
        offset = (self.linear.bias - self.mean[0]) * scale + self.shift
        return torch.addmm(offset, x, (self.linear.weight * scale[:, None]).T).relu_()
