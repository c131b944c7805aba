"""The mean is taken while rows are read: nothing of 64 times the output's size in memory."""

import torch.nn.functional as F


def run(state, ids):
    return F.embedding_bag(ids, state["table"], mode="mean")
