"""The same step with torch's operators over lists of tensors."""

import torch

_RATE, _DECAY, _FIRST, _SECOND, _EPSILON = 1e-3, 0.01, 0.9, 0.999, 1e-8


def run(state, gradients):
    p, m, v, grads = state["p"], state["m"], state["v"], list(gradients)
    torch._foreach_mul_(p, 1 - _RATE * _DECAY)
    torch._foreach_mul_(m, _FIRST)
    torch._foreach_add_(m, grads, alpha=1 - _FIRST)
    torch._foreach_mul_(v, _SECOND)
    torch._foreach_addcmul_(v, grads, grads, value=1 - _SECOND)
    below = torch._foreach_sqrt(v)
    torch._foreach_add_(below, _EPSILON)
    torch._foreach_addcdiv_(p, m, below, value=-_RATE)
    return torch.stack([one.sum() for one in p]).sum()
