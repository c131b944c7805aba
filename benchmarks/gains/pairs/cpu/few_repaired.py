"""sort-for-few: the few that are wanted."""

import torch


def run(state, x):
    layer, known = state
    far = torch.cdist(layer(x), known)
    return far.topk(3, dim=1, largest=False).values.mean(dim=1)
