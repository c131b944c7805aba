"""eager-attention: a decoder block in bfloat16, its scores written out."""

import math

import torch
from torch import nn

HEADS = 16


def setup(seed, device):
    torch.manual_seed(seed)
    parts = {"norm": nn.LayerNorm(1024), "qkv": nn.Linear(1024, 3072), "out": nn.Linear(1024, 1024)}
    parts |= {"up": nn.Linear(1024, 4096), "down": nn.Linear(4096, 1024)}
    block = nn.ModuleDict(parts).to(device).requires_grad_(False)
    nn.init.normal_(block["norm"].weight, 1.0, 0.2)
    nn.init.normal_(block["norm"].bias, 0.0, 0.2)
    return block.bfloat16()


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(8, 2048, 1024, generator=g, device=device).bfloat16()


def run(block, x):
    batch, length, width = x.shape
    q, k, v = (
        part.view(batch, length, HEADS, -1).transpose(1, 2)
        for part in block["qkv"](block["norm"](x)).chunk(3, dim=-1)
    )
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mixed = torch.softmax(scores, dim=-1) @ v
    x = x + block["out"](mixed.transpose(1, 2).reshape(batch, length, width))
    return x + block["down"](torch.relu(block["up"](x)))


tolerance = 2e-2
