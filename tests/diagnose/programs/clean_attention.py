"""Nothing to find: a block of attention with torch's own functions."""

import torch
import torch.nn.functional as F


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = torch.nn.LayerNorm(width)
        self.project = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.project(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(attended.transpose(1, 2).reshape(batch, length, width))


torch.manual_seed(0)
model = torch.nn.Sequential(*[Block(128, 4) for _ in range(2)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
batch = torch.randn(4, 128, 128)
for _ in range(22):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = model(batch)
    loss = x.float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
