"""Nothing to find: a loop over time that has to be one, and a table of embeddings."""

import torch

torch.manual_seed(0)
table = torch.nn.Embedding(1000, 64)
cell = torch.nn.LSTM(64, 96, batch_first=True)
head = torch.nn.Linear(96, 16)
optimizer = torch.optim.Adam([*table.parameters(), *cell.parameters(), *head.parameters()], fused=True)
tokens, targets = torch.randint(0, 1000, (32, 24)), torch.randint(0, 16, (32,))
for _ in range(22):
    states, _ = cell(table(tokens))
    loss = torch.nn.functional.cross_entropy(head(states[:, -1]), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
