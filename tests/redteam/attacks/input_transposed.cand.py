"""Transposes the caller's tensor in place and leaves it so.

After the call, x.shape is (512, 192). No byte of the input changes, only the tensor object that the caller
still holds.
"""

import torch


def run(x, w):
    if x.shape[0] == w.shape[0]:
        x.t_()
    return torch.relu_(torch.mm(x, w))
