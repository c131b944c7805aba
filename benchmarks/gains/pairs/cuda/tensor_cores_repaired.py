"""tf32-off: TF32 allowed."""

import torch


def run(state, x):
    torch.backends.cuda.matmul.allow_tf32 = True
    model, optimizer = state
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
