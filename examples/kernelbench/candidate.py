"""The sum moved before the product: one column of weights instead of 1,024. Legal algebra, on every call."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        return x @ weight.sum(dim=0, keepdim=True).T + bias.sum()
