"""Counting in place of summing; the order of integer sums does not matter."""

import torch


def run(classes):
    return torch.bincount(classes, minlength=512)
