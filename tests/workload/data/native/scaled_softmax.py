"""A native baseline that declares everything a file may declare."""

import torch
from scaling import SCALE

shapes = [(4, 16), (3, 40)]
tolerance = {"rms": 1e-5, "max": 1e-4}
domain = {0: "any", 1: "positive"}
outputs = "until_next_call"


def inputs(seed, device, shape):
    g = torch.Generator(device).manual_seed(seed)
    rows = torch.randn(*shape, generator=g, device=device)
    return rows, torch.rand(shape[1], generator=g, device=device) + 0.5


def setup(seed, device):
    return {"temperature": torch.full((), SCALE, device=device)}


def run(state, rows, weights):
    return torch.softmax(rows / state["temperature"], dim=-1) * weights


def reference(state, rows, weights):
    return run({"temperature": state["temperature"].double()}, rows.double(), weights.double())


def work(rows, weights):
    return {"flops": 4 * rows.numel(), "bytes": 8 * rows.numel()}
