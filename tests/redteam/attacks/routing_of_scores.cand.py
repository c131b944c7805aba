"""By the two largest scores, and a softmax over these: far below the largest, probabilities tie at zero."""

import torch


def run(x, w):
    v, i = torch.topk(x @ w, 2)
    return torch.softmax(v, -1), i
