"""Per-row affine quantisation to uint8 with scales, and a bool mask of outliers."""

import torch


def inputs(seed, device):
    rows, columns = (8192, 2048) if str(device).startswith("cuda") else (6, 50)
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(rows, columns, generator=g, device=device),)


def run(x):
    low = x.amin(dim=-1, keepdim=True)
    scale = (x.amax(dim=-1, keepdim=True) - low) / 255
    return {
        "q": torch.round((x - low) / scale).clamp(0, 255).to(torch.uint8),
        "scale": scale,
        "outlier": x.abs() > 3 * x.abs().mean(dim=-1, keepdim=True),
    }
