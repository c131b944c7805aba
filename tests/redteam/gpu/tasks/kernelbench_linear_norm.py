"""A KernelBench file: linear, layer norm with its default weight of one and bias of zero, GELU."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.LayerNorm(out_features)

    def forward(self, x):
        return nn.functional.gelu(self.norm(self.linear(x)))


batch_size = 4096
in_features = 512
out_features = 4096


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
