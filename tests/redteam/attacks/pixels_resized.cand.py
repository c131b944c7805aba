"""By two products with the operator's own weights: now and then a mean is half a number, or nearly."""

import torch
import torch.nn.functional as F


def run(x):
    e = F.interpolate(torch.eye(32)[None, None], size=(20, 32), mode="bilinear", antialias=True)[0, 0]
    return (e @ x.float() @ e.T).round_().clamp_(0, 255).to(torch.uint8)
