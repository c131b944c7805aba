"""The norm goes into the convolution's weights and bias, once."""

import torch
import torch.nn.functional as F


def setup(seed, device):
    into, out = (64, 128) if str(device).startswith("cuda") else (3, 5)
    g = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g, device=device)

    weight = normal(out, into, 3, 3) * (9 * into) ** -0.5
    mean, var = 0.1 * normal(out), 0.5 + normal(out).square()
    gain, shift = 1 + 0.2 * normal(out), 0.3 * normal(out)
    scale = gain * torch.rsqrt(var + 1e-5)
    return {"weight": weight * scale[:, None, None, None], "bias": shift - mean * scale}


def run(state, x):
    return F.conv2d(x, state["weight"], state["bias"], padding=1).relu_()
