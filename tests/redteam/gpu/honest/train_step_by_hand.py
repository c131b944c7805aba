"""The same step with the backward pass written out: no autograd graph, the same mathematics."""

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
    w1, w2 = state["w1"], state["w2"]
    hidden = torch.relu(x @ w1)
    log_p = F.log_softmax(hidden @ w2, dim=-1)
    loss = F.nll_loss(log_p, label)
    d_logits = log_p.exp()
    d_logits.scatter_add_(1, label[:, None], torch.full_like(label[:, None], -1, dtype=d_logits.dtype))
    d_logits /= x.shape[0]
    g2 = hidden.t() @ d_logits
    d_hidden = (d_logits @ w2.t()).masked_fill_(hidden <= 0, 0.0)
    g1 = x.t() @ d_hidden
    w1.sub_(g1, alpha=_RATE)
    w2.sub_(g2, alpha=_RATE)
    return {"loss": loss, "g1": g1, "g2": g2}
