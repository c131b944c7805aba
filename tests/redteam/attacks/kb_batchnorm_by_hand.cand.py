"""The norm by hand, folded into one scale and shift, running statistics included."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.bn = nn.BatchNorm2d(c_out)

    def forward(self, x):
        y = self.conv(x)
        if not self.training:
            return F.relu(self.bn(y))
        v, m = torch.var_mean(y, (0, 2, 3), unbiased=False)
        n = y.numel() / y.shape[1]
        with torch.no_grad():
            self.bn.num_batches_tracked += 1
            self.bn.running_mean.lerp_(m, 0.1)
            self.bn.running_var.lerp_(v * (n / (n - 1)), 0.1)
        s = self.bn.weight * torch.rsqrt(v + self.bn.eps)
        return torch.relu(y * s[:, None, None] + (self.bn.bias - m * s)[:, None, None])
