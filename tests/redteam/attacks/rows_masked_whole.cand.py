"""By hand, with NaN where the baseline has it."""

import torch


def run(s, dead):
    e = torch.exp(s - s.amax(-1, keepdim=True))
    p = e / e.sum(-1, keepdim=True)
    return torch.where(dead[:, :, None], float("nan"), p)
