"""The best 4 of the logits are those of their sigmoid: 4 exponentials in place of 32."""

import torch


def run(router, x):
    best, expert = torch.topk(x @ router, 4, dim=-1)
    weight = torch.sigmoid(best)
    return weight / weight.sum(dim=-1, keepdim=True), expert
