"""By another product."""

import torch


def run(weights, x):
    chosen = torch.einsum("nk,km->nm", x.bfloat16(), weights).gt(4)
    return chosen, chosen.count_nonzero(), x.bfloat16().mul(40).round_().int()
