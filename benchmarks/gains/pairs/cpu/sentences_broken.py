"""scalar-writes: sentences of unlike lengths are put into a padded batch, and read by a small classifier."""

import torch
from torch import nn

LENGTHS = [6 + 5 * i % 23 for i in range(64)]


def setup(seed, device):
    torch.manual_seed(seed)
    parts = {
        "words": nn.Embedding(4000, 96),
        "reader": nn.Conv1d(96, 96, 3, padding=1),
        "head": nn.Linear(96, 5),
    }
    return nn.ModuleDict(parts).to(device).requires_grad_(False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return [[torch.randint(1, 4000, (n,), generator=g, device=device).tolist() for n in LENGTHS]]


def run(model, sentences):
    longest = max(len(sentence) for sentence in sentences)
    batch = torch.zeros(len(sentences), longest, dtype=torch.long)
    for i, sentence in enumerate(sentences):
        for j, word in enumerate(sentence):
            batch[i, j] = word
    seen = torch.relu(model["reader"](model["words"](batch).transpose(1, 2)))
    kept = (batch != 0).unsqueeze(1)
    return batch, model["head"]((seen * kept).sum(dim=2) / kept.sum(dim=2))
