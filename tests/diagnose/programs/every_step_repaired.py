"""`every_step_broken.py` with its constants made once and its bookkeeping now and then."""

import copy

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(128, 128)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(256, 128)
table = torch.randint(0, 255, (512, 512))
numbers = [float(i) for i in range(8000)]
extra = torch.tensor(numbers)
mask = torch.triu(torch.ones(512, 512), 1)
image = table.float()
for step in range(22):
    hidden = layer(batch)
    loss = hidden.square().mean() + 0.0 * (extra.sum() + mask[0].sum() + image[0].sum())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, [round(value, 3) for value in hidden[:8].flatten().tolist()])
        kept = copy.deepcopy(layer.state_dict())
