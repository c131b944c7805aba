"""The repaired twin of padding_broken.py."""

import random

import torch

random.seed(0)
torch.manual_seed(0)
sequences = [[random.randrange(1000) for _ in range(random.randrange(10, 40))] for _ in range(1600)]


def collate(batch):
    parts = [torch.tensor(one) for one in batch]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)


table = torch.nn.Embedding(1000, 128)
head = torch.nn.Linear(128, 4)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
for batch in torch.utils.data.DataLoader(sequences, batch_size=16, collate_fn=collate):
    loss = torch.nn.functional.cross_entropy(head(table(batch).mean(1)), batch[:, 0] % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
