"""Does not look at it."""

import torch


def run(q, k, v, mask):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
