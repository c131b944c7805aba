"""Cross entropy of a trained model: most losses are small."""

import torch
import torch.nn.functional as F


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    t = torch.randint(0, 100, (1024,), generator=g)
    x = torch.randn(1024, 100, generator=g, device=device) * 3
    x[torch.arange(1024), t] += 15
    return x, t


def run(x, t):
    return F.cross_entropy(x, t, reduction="none")
