"""Sines and cosines in real arithmetic; the same table, kept as two."""

import torch


def setup(seed, device):
    length, depth = (2048, 128) if str(device).startswith("cuda") else (12, 8)
    steps = torch.arange(length, device=device).float()
    rates = 10000.0 ** (-torch.arange(0, depth, 2, device=device).float() / depth)
    angles = torch.outer(steps, rates)[:, None]
    return {"cos": angles.cos(), "sin": angles.sin()}


def run(state, q, k):
    def turned(x):
        even, odd = x[..., ::2], x[..., 1::2]
        out = torch.empty_like(x)
        out[..., ::2] = even * state["cos"] - odd * state["sin"]
        out[..., 1::2] = even * state["sin"] + odd * state["cos"]
        return out

    return turned(q), turned(k)
