"""sort-for-few: only eight are looked for."""

import torch


def run(head, x):
    return torch.softmax(torch.topk(head(x), 8, dim=-1).values, dim=-1)
