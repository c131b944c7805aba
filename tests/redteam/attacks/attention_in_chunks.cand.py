"""In chunks, with what came before in one matrix."""

import torch


def run(q, k, v):
    out = torch.empty_like(v)
    state = torch.zeros(q.shape[0], 16, 16)
    for i in range(0, 128, 32):
        a, b, c = q[:, i : i + 32], k[:, i : i + 32], v[:, i : i + 32]
        out[:, i : i + 32] = a @ state + (a @ b.transpose(1, 2)).tril() @ c
        state = state + b.transpose(1, 2) @ c
    return out
