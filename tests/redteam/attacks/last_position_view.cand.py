"""The same as a view of the whole result, which spans 124 times as much memory."""

import torch


def run(w, x):
    return torch.tanh(x @ w)[:, -1]
