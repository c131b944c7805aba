"""The products summed in two halves.

In one call of a hundred the count differs by one, through rounding alone.
"""

import torch


def run(a, b):
    half = a.shape[1] // 2
    scores = torch.addmm(a[:, :half] @ b[:half], a[:, half:], b[half:])
    return {"positive": int(torch.count_nonzero(scores > 0)), "rows": scores.mean(dim=1)}
