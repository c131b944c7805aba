"""Loops in Python over tensors. `problem:` names the rule that has to find a line."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
rows = torch.randn(300, 64)
weights = torch.rand(40, 24, 24)
mixing = torch.rand(64, 64)
for _ in range(22):
    hidden = layer(rows)
    scaled = torch.empty_like(rows)
    for i in range(120):
        scaled[i] = rows[i].tanh() * 0.5  # problem: python-loop
    grown = torch.zeros(0, 64)
    for i in range(60):
        grown = torch.cat([grown, rows[: i + 1]])  # problem: cat-in-loop
    largest = 0.0
    for i in range(250):
        largest = max(largest, rows[i, 0].item())  # problem: scalar-reads
    total = sum(rows)  # problem: built-in-over-tensor
    products = []
    for i in range(40):
        products.append(weights[i] @ weights[i])  # problem: looped-products
    mixed = torch.stack([row @ mixing for row in rows])  # problem: looped-products
    loss = hidden.square().mean() + 0.0 * (scaled.sum() + grown.sum() + largest + total.sum() + mixed.sum())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
