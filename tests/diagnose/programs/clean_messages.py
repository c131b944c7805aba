"""Nothing to find: messages along the edges of a graph, gathered and added up by index."""

import torch

torch.manual_seed(0)
sources, targets = torch.randint(0, 2000, (2, 12000))
nodes = torch.randn(2000, 64)
layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(2))
optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3, fused=True)
for _ in range(22):
    x = nodes
    for layer in layers:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            sent = layer(x).float()
        x = torch.relu(torch.zeros_like(x).index_add_(0, targets, sent[sources]))
    loss = torch.nn.functional.smooth_l1_loss(x, nodes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
