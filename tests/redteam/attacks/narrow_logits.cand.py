"""All of it in float32, which is only more exact."""

import torch


def run(state, x):
    weight, scale = state
    return torch.nn.functional.rms_norm(x.float(), (512,), scale.float(), 1e-6) @ weight.float().T
