"""The product in single precision."""

import torch


def run(a, b):
    return (a.to(torch.complex64) @ b.to(torch.complex64)).to(torch.complex128)
