"""A float32 training step under bfloat16 autocast."""

import torch
import torch.nn.functional as F

_RATE = 0.1


def setup(seed, device):
    width, hidden, classes = (1024, 2048, 256) if str(device).startswith("cuda") else (16, 32, 8)
    g = torch.Generator(device).manual_seed(seed)
    return {
        "w1": torch.randn(width, hidden, generator=g, device=device) * width**-0.5,
        "w2": torch.randn(hidden, classes, generator=g, device=device) * hidden**-0.5,
    }


def run(state, x, label):
    w1 = state["w1"].detach().requires_grad_()
    w2 = state["w2"].detach().requires_grad_()
    with torch.autocast(x.device.type, torch.bfloat16):
        logits = torch.relu(x @ w1) @ w2
    loss = F.cross_entropy(logits.float(), label)
    g1, g2 = torch.autograd.grad(loss, (w1, w2))
    state["w1"].sub_(g1, alpha=_RATE)
    state["w2"].sub_(g2, alpha=_RATE)
    return {"loss": loss.detach(), "g1": g1, "g2": g2}
