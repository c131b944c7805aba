"""Twenty steps of the 64, which leaves out one part in a hundred."""

import torch
import torch.nn.functional as F

TAPS = 20


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
