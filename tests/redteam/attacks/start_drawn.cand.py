"""Index first, in another way."""

import torch


def run(x, row, scale):
    return torch.index_select(x, 0, row.reshape(1)).reshape(-1).mul(scale).tanh()
