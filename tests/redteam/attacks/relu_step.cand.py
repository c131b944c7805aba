"""By hand: products and sums in another order, and no graph."""

import torch


@torch.no_grad()
def run(state, x, y):
    model, optimizer = state
    first, _, last = model
    before = torch.addmm(first.bias, x, first.weight.T)
    h = before.clamp_min(0)
    logits = torch.addmm(last.bias, h, last.weight.T)
    chances = torch.log_softmax(logits, 1)
    loss = -chances.gather(1, y[:, None]).mean()
    d = chances.exp()
    d[torch.arange(len(y), device=y.device), y] -= 1
    d /= len(y)
    back = (d @ last.weight) * (before > 0)
    first.weight.grad, first.bias.grad = (x.T @ back).T.contiguous(), back.sum(0)
    last.weight.grad, last.bias.grad = (h.T @ d).T.contiguous(), d.sum(0)
    optimizer.step()
    return loss
