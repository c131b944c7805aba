"""materialised-repeat: multiplied as it is."""

import torch


def run(layer, x, correction):
    return torch.sigmoid(layer(x * correction))
