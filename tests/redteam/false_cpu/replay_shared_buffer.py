"""Writes every result into one buffer and returns that buffer.
Wins the cost of fresh memory; the caller's earlier results change under its hands."""

import torch

_buffer = None


def run(x):
    global _buffer
    if _buffer is None or _buffer.shape != x.shape:
        _buffer = torch.empty_like(x)
    torch.neg(x, out=_buffer)
    return _buffer
