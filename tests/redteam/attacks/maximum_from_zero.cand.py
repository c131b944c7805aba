"""Rows padded with zeros to a round size, as a kernel with a careless mask does."""

import torch


def run(x):
    return torch.nn.functional.pad(x, (0, 24)).amax(-1)
