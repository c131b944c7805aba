"""A gated MLP (SwiGLU) in bf16, held as an nn.Module in the state: 512 tokens, 1024 → 4096 → 1024."""

import torch
import torch.nn.functional as F


def _width(device):
    return 1024 if str(device).startswith("cuda") else 32


class GatedMLP(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = torch.nn.Linear(width, 4 * width, bias=False)
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def inputs(seed, device):
    width = _width(device)
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(width // 2, width, generator=g, device=device).bfloat16(),)


def setup(seed, device):
    torch.manual_seed(seed)
    return GatedMLP(_width(device)).to(device=device, dtype=torch.bfloat16).requires_grad_(False)


def run(state, x):
    return state(x)
