"""sort-for-few: documents are ordered by their scores, for the best twenty of each query."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    queries = torch.randn(128, 96, generator=g, device=device)
    return queries, torch.randn(3000, 96, generator=g, device=device)


def run(queries, documents):
    scores = queries @ documents.T
    best = torch.argsort(scores, dim=1, descending=True)[:, :20]
    return scores.gather(1, best)
