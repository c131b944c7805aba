import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    """The same computation with parameters of other names and shapes, some packed in the constructor."""

    def __init__(self, in_features, out_features, bias_shape):
        super().__init__()
        linear = nn.Linear(in_features, out_features)
        extra = nn.Parameter(torch.zeros(bias_shape[0], 1))
        self.extra_bias = extra
        norm = nn.LayerNorm(out_features)
        self.packed = nn.Parameter(linear.weight.detach().t().contiguous())
        self.shift = nn.Parameter(linear.bias.detach())
        self.gamma = nn.Parameter(torch.cat([norm.weight.detach(), norm.weight.new_empty(0)]))
        self.beta = nn.Parameter(norm.bias.detach())
        self.gamma2 = nn.Parameter(torch.ones(out_features))
        self.beta2 = nn.Parameter(torch.zeros(out_features))
        self.factor = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        y = torch.addmm(self.shift + self.extra_bias.view(-1), x, self.packed)
        y = torch.relu(F.layer_norm(y, y.shape[-1:], self.gamma, self.beta))
        return F.layer_norm(y, y.shape[-1:], self.gamma2, self.beta2) * self.factor
