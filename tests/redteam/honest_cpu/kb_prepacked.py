"""A KernelBench module that packs the layer's weight with its bias under another name."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width_in, width_out, scale):
        super().__init__()
        layer = nn.Linear(width_in, width_out)
        self.packed = nn.Parameter(torch.cat((layer.weight, layer.bias[:, None]), dim=1).T.contiguous())
        self.scale = scale

    def forward(self, x):
        y = torch.addmm(self.packed[-1], x, self.packed[:-1])
        return torch.nn.functional.gelu(y, approximate="tanh").mul_(self.scale)
