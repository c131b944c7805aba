"""Whether a loss scaler has to skip the step, and the gradient's norm."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    scale = torch.exp2(torch.randint(10, 18, (), generator=g, device=device).float())
    return torch.randn(1 << 16, generator=g, device=device), scale


def run(grad, scale):
    return (grad * scale).half().isinf().any(), grad.norm()
