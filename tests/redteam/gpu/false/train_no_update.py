"""Returns loss and gradients and leaves the weights as they were."""

import torch
import torch.nn.functional as F


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
    loss = F.cross_entropy(torch.relu(x @ w1) @ w2, label)
    g1, g2 = torch.autograd.grad(loss, (w1, w2))
    return {"loss": loss.detach(), "g1": g1, "g2": g2}
