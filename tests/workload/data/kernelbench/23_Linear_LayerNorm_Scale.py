import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Model that performs a matrix multiplication, applies Layer Normalization twice, and scales the result.
    """

    def __init__(self, in_features, out_features, bias_shape):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.zeros(bias_shape))
        self.norm1 = nn.LayerNorm(out_features)
        self.norm2 = nn.LayerNorm(out_features)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        """
        Args:
            x (torch.Tensor): Input tensor of shape (batch_size, in_features).
        Returns:
            torch.Tensor: Output tensor of shape (batch_size, out_features).
        """
        x = self.norm1(self.linear(x) + self.bias)
        return self.norm2(torch.relu(x)) * self.scale


batch_size = 8
in_features = 12
out_features = 20
bias_shape = (out_features,)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, bias_shape]
