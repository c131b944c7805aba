"""Nothing to find: a compiled network in training."""

import torch


class Gate(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.RMSNorm(width)
        self.both, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        gate, value = self.both(self.norm(x)).chunk(2, dim=-1)
        return x + self.down(torch.nn.functional.silu(gate) * value)


torch.manual_seed(0)
torch.set_default_device("cuda")
model = torch.compile(torch.nn.Sequential(*[Gate(2048) for _ in range(4)]).bfloat16())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
batch = torch.randn(16384, 2048).bfloat16()
for _ in range(120):
    loss = model(batch).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
