"""eager-attention: torch's own."""

import torch


def run(layer, q, k, v, x):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v), torch.tanh(layer(x))
