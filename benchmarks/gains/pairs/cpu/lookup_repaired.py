"""one-hot-product: rows of a table picked by their numbers."""

import torch
from torch.nn.functional import embedding


def run(state, tokens):
    model, optimizer = state
    rows = embedding(tokens, model["table"])
    loss = torch.logsumexp(rows @ model["head"], dim=-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
