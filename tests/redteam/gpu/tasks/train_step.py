"""One SGD step of a two-layer classifier: outputs are loss and gradients, the weights change in place."""

import torch
import torch.nn.functional as F

_RATE = 0.1


def _sizes(device):
    return (4096, 1024, 2048, 256) if str(device).startswith("cuda") else (32, 16, 32, 8)


def inputs(seed, device):
    batch, width, _, classes = _sizes(device)
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(batch, width, generator=g, device=device)
    return x, torch.randint(classes, (batch,), generator=g, device=device)


def setup(seed, device):
    _, width, hidden, classes = _sizes(device)
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
    state["w1"].sub_(g1, alpha=_RATE)
    state["w2"].sub_(g2, alpha=_RATE)
    return {"loss": loss.detach(), "g1": g1, "g2": g2}
