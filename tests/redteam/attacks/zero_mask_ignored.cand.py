"""Does not look at the mask."""

import torch


def run(q, k, v, mask):
    return torch.softmax((q / 4) @ k.transpose(1, 2), -1) @ v
