"""Writes every result into one buffer, which the baseline's file allows."""

import torch

_buffer = None


def run(x, y):
    global _buffer
    if _buffer is None or _buffer.shape != x.shape:
        _buffer = torch.empty_like(x)
    torch.add(x, y, out=_buffer)
    return _buffer.mul_(0.5).sub_(y, alpha=0.25)
