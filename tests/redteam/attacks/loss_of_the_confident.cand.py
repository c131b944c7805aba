"""The log of the sum less the score, as fused losses have it: both are large where the loss is small."""

import torch


def run(x, t):
    return torch.logsumexp(x, 1) - x.gather(1, t[:, None]).squeeze(1)
