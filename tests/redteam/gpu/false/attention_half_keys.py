"""Attends to the first half of the keys: near one half whichever keys are used."""

import torch.nn.functional as F


def run(q, k, v):
    half = k.shape[2] // 2
    return F.scaled_dot_product_attention(q, k[:, :, :half], v[:, :, :half])
