"""`expressions_broken.py` with torch's own functions."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
projection = torch.nn.Linear(64, 192)
optimizer = torch.optim.SGD(projection.parameters(), lr=0.01, fused=True)
batch = torch.randn(4, 256, 64)
labels = torch.randint(0, 192, (4 * 256,))

for _ in range(22):
    q, k, v = projection(batch).view(4, 256, 3, 4, 16).permute(2, 0, 3, 1, 4)
    x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(4, 256, 64)
    x = F.layer_norm(torch.cat([x, x, x], -1), (192,))
    x = F.gelu(x, approximate="tanh")
    x = torch.softmax(x, -1)
    loss = F.cross_entropy(x.reshape(-1, 192), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
