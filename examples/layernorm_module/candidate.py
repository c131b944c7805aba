"""The fused kernel on the same weights. Without a `setup` of its own it is given the baseline's state."""

from torch.nn import functional


def run(norm, x):
    return functional.layer_norm(x, norm.weight.shape, norm.weight, norm.bias, 1e-5)
