"""The same in channels_last, whose sums have another order."""

import torch


def run(state, x):
    model, optimizer = state
    loss = torch.logsumexp(model(x.contiguous(memory_format=torch.channels_last)), dim=1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
