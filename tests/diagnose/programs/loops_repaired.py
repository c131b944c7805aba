"""The loops of `loops_broken.py`, each as one operator."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
rows = torch.randn(300, 64)
weights = torch.rand(40, 24, 24)
mixing = torch.rand(64, 64)
for _ in range(22):
    hidden = layer(rows)
    scaled = rows[:120].tanh() * 0.5
    parts = []
    for i in range(60):
        parts.append(rows[: i + 1])
    grown = torch.cat(parts)
    largest = 0.0
    for value in rows[:250, 0].tolist():
        largest = max(largest, value)
    total = rows.sum(0)
    products = weights @ weights
    mixed = rows @ mixing
    loss = hidden.square().mean() + 0.0 * (scaled.sum() + grown.sum() + largest + total.sum() + mixed.sum())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
