"""Bfloat16 signals, smoothed in float32 in 64 steps, then dropout: the baseline alone says what is right."""

import torch
import torch.nn.functional as F

TAPS = 64


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(128, 4096, generator=g, device=device).bfloat16(),)


def smooth(x, taps):
    x = x.float()
    padded = F.pad(x, (taps - 1, 0))
    made = torch.zeros_like(x)
    for step in range(taps):
        begin = taps - 1 - step
        made += 0.8**step * padded[:, begin : begin + x.shape[1]]
    return made


def run(x):
    return F.dropout(smooth(x, TAPS), 0.1)
