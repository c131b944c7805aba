"""Products of eight bits."""

import torch


def run(weight, x):
    weight = weight.float()
    unit = weight.abs().amax(1) / 127
    short = (weight / unit[:, None]).round().to(torch.int8).T.contiguous()
    scale = x.abs().amax(1, keepdim=True).clamp_min(1e-37) / 127
    return torch._int_mm((x / scale).round().to(torch.int8), short).float() * scale * unit
