"""KL divergence of normals by torch.distributions, which refuses a negative scale with a ValueError."""

import torch
from torch.distributions import Normal, kl_divergence


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    shape = (512, 512)
    means = [torch.randn(shape, generator=g, device=device) for _ in range(2)]
    scales = [torch.rand(shape, generator=g, device=device) + 0.5 for _ in range(2)]
    return means[0], scales[0], means[1], scales[1]


def run(mean, scale, other_mean, other_scale):
    return kl_divergence(Normal(mean, scale), Normal(other_mean, other_scale))
