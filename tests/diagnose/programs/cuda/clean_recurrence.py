"""Nothing to find: an LSTM of cuDNN's over a table of embeddings."""

import torch

torch.manual_seed(0)
torch.set_default_device("cuda")
table = torch.nn.Embedding(32000, 1024).bfloat16()
cell = torch.nn.LSTM(1024, 1024, num_layers=2, batch_first=True).bfloat16()
head = torch.nn.Linear(1024, 1024).bfloat16()
parameters = [*table.parameters(), *cell.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-4, fused=True)
tokens, targets = torch.randint(0, 32000, (256, 128)), torch.randint(0, 1024, (256,))
for _ in range(80):
    states, _ = cell(table(tokens))
    loss = torch.nn.functional.cross_entropy(head(states[:, -1]).float(), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
