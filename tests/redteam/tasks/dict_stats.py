"""A dict of outputs: row means, row variances and the normalised rows."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(512, 1024, generator=g, device=device),)


def run(x):
    mean = x.mean(dim=-1)
    var = x.var(dim=-1, correction=0)
    normed = (x - x.mean(dim=-1, keepdim=True)) / torch.sqrt(x.var(dim=-1, keepdim=True, correction=0) + 1e-5)
    return {"mean": mean, "var": var, "normed": normed}
