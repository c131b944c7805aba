"""The same with a worker that keeps up."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    """Each is read as from a slow disk, a hundred at a time."""

    def __len__(self) -> int:
        return 400

    def __getitems__(self, places: list[int]) -> list[torch.Tensor]:
        time.sleep(0.001)
        return [torch.full((64,), float(place)) for place in places]


torch.manual_seed(0)
layer = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
loader = DataLoader(Samples(), batch_size=16, num_workers=1, persistent_workers=True)
for inputs in loader:
    loss = layer(inputs.repeat(64, 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
