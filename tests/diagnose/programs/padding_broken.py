"""Sequences of unlike lengths that are put into one tensor number by number. `problem:` names the rule."""

import random

import torch

random.seed(0)
torch.manual_seed(0)
sequences = [[random.randrange(1000) for _ in range(random.randrange(10, 40))] for _ in range(1600)]


def collate(batch):
    longest = max(len(one) for one in batch)
    padded = torch.zeros(len(batch), longest, dtype=torch.long)
    for i, one in enumerate(batch):
        for j, token in enumerate(one):
            padded[i, j] = token  # problem: scalar-writes
    return padded


table = torch.nn.Embedding(1000, 128)
head = torch.nn.Linear(128, 4)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
weights = torch.ones(8)
for batch in torch.utils.data.DataLoader(sequences, batch_size=16, collate_fn=collate):
    for k in range(8):
        weights[k] = 1.0 / (k + 1)  # too few to speak of
    loss = torch.nn.functional.cross_entropy(head(table(batch).mean(1)), batch[:, 0] % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
