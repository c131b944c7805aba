"""KernelBench: the same computation under other parameter names, with the weight kept transposed."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        linear = nn.Linear(in_features, out_features)
        norm = nn.LayerNorm(out_features)
        self.packed = nn.Parameter(linear.weight.detach().t().contiguous())
        self.shift = nn.Parameter(linear.bias.detach())
        self.gamma = nn.Parameter(norm.weight.detach())
        self.beta = nn.Parameter(norm.bias.detach())

    def forward(self, x):
        y = torch.addmm(self.shift, x, self.packed)
        return nn.functional.gelu(nn.functional.layer_norm(y, y.shape[-1:], self.gamma, self.beta))
