"""What a step need not do each time. `problem:` names the rule that has to find a line."""

import copy

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(128, 128)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(256, 128)
table = torch.randint(0, 255, (512, 512))
numbers = [float(i) for i in range(8000)]
for step in range(22):
    hidden = layer(batch)
    extra = torch.tensor(numbers)  # problem: tensor-from-python
    mask = torch.triu(torch.ones(512, 512), 1)  # problem: rebuilt-constants
    image = table.float()  # problem: repeated-casts
    loss = hidden.square().mean() + 0.0 * (extra.sum() + mask[0].sum() + image[0].sum())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, [round(value, 3) for value in hidden[:8].flatten().tolist()])  # problem: printing-every-step
    kept = copy.deepcopy(layer.state_dict())  # problem: saving-every-step
