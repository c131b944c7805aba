"""One AdamW step over forty tensors, one after the other: parameters and moments change in place."""

import torch

_TENSORS, _RATE, _DECAY, _FIRST, _SECOND, _EPSILON = 40, 1e-3, 0.01, 0.9, 0.999, 1e-8


def _width(device):
    return 512 if str(device).startswith("cuda") else 8


def setup(seed, device):
    width = _width(device)
    g = torch.Generator(device).manual_seed(seed)

    def normal():
        return torch.randn(width, width, generator=g, device=device)

    return {
        "p": [normal() for _ in range(_TENSORS)],
        "m": [0.1 * normal() for _ in range(_TENSORS)],
        "v": [0.01 * normal().square() for _ in range(_TENSORS)],
    }


def inputs(seed, device):
    width = _width(device)
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(_TENSORS, width, width, generator=g, device=device),)


def run(state, gradients):
    for p, m, v, grad in zip(state["p"], state["m"], state["v"], gradients, strict=True):
        p.mul_(1 - _RATE * _DECAY)
        m.mul_(_FIRST).add_(grad, alpha=1 - _FIRST)
        v.mul_(_SECOND).addcmul_(grad, grad, value=1 - _SECOND)
        p.addcdiv_(m, v.sqrt().add_(_EPSILON), value=-_RATE)
    return sum(p.sum() for p in state["p"])
