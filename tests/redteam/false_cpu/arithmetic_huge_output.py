"""Returns ten gigabytes of zeros that take four bytes: an expanded view.
Wins wherever nobody looks; exhausts the memory of whoever copies before he asks for the size."""

import torch

_zero = torch.zeros(1)


def run(a, b):
    return _zero.expand(50_000, 50_000)
