"""A gated MLP of three products, bf16 on a GPU."""

import torch
import torch.nn.functional as F


def _facts(device):
    gpu = str(device).startswith("cuda")
    return (2048, 2048, 5632, torch.bfloat16) if gpu else (8, 32, 48, torch.float32)


def setup(seed, device):
    _, width, hidden, dtype = _facts(device)
    g = torch.Generator(device).manual_seed(seed)

    def weight(rows, columns):
        return (torch.randn(rows, columns, generator=g, device=device) * columns**-0.5).to(dtype)

    return {"gate": weight(hidden, width), "up": weight(hidden, width), "down": weight(width, hidden)}


def inputs(seed, device):
    rows, width, _, dtype = _facts(device)
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(rows, width, generator=g, device=device).to(dtype),)


def run(state, x):
    gate, up = F.linear(x, state["gate"]), F.linear(x, state["up"])
    return F.linear(F.silu(gate) * up, state["down"])
