"""Clamps in place and returns a view of the argument: right values, a destroyed input, no new memory."""

import torch


def run(x):
    return torch.relu_(x).view_as(x)
