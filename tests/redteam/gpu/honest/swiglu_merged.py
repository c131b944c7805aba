"""Gate and up projection as one product over weights that were joined once."""

import torch
import torch.nn.functional as F


def setup(seed, device):
    gpu = str(device).startswith("cuda")
    width, hidden, dtype = (2048, 5632, torch.bfloat16) if gpu else (32, 48, torch.float32)
    g = torch.Generator(device).manual_seed(seed)

    def weight(rows, columns):
        return (torch.randn(rows, columns, generator=g, device=device) * columns**-0.5).to(dtype)

    gate, up, down = weight(hidden, width), weight(hidden, width), weight(width, hidden)
    return {"both": torch.cat([gate, up]), "down": down}


def run(state, x):
    gate, up = F.linear(x, state["both"]).chunk(2, -1)
    return F.linear(F.silu(gate) * up, state["down"])
