"""One Adam step on a flat parameter: moments and step count live in the state."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    n = 1 << 14
    return {
        "p": torch.randn(n, generator=g, device=device),
        "m": torch.zeros(n, device=device),
        "v": torch.zeros(n, device=device),
        "step": torch.zeros(1, device=device),
    }


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1 << 14, generator=g, device=device),)


def run(state, gradient):
    state["step"] += 1
    t = float(state["step"])
    state["m"].mul_(0.9).add_(gradient, alpha=0.1)
    state["v"].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    denominator = (state["v"] / (1 - 0.999**t)).sqrt_().add_(1e-8)
    state["p"].addcdiv_(state["m"] / (1 - 0.9**t), denominator, value=-1e-3)
    return state["step"].clone()
