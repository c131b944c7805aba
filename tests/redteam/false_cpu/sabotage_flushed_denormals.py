"""Flushes subnormal numbers to zero during its own call.
Wins because subnormal arithmetic is slow, and an absolute tolerance cannot see 1e-39."""

import torch


def run(x):
    torch.set_flush_denormal(True)
    try:
        return x * 0.75
    finally:
        torch.set_flush_denormal(False)
