"""Vectors that are drawn are never so near each other."""

import torch
import torch.nn.functional as F


def run(one, other):
    return F.cross_entropy(one @ other.T / 0.07, torch.arange(len(one), device=one.device), reduction="none")
