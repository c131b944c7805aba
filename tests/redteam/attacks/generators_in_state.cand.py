"""The same numbers from the same generators, with fewer temporaries."""

import torch


def run(noise, x):
    kept = torch.empty_like(x).uniform_(generator=noise.keep) < 0.9
    return torch.empty_like(x).normal_(generator=noise.move).mul_(0.1).addcmul_(x, kept, value=1 / 0.9)
