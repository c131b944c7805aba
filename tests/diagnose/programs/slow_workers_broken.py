"""A worker that does not keep up. `problem:` names the rule that has to find a line."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    """Each is read as from a slow disk."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, place: int) -> torch.Tensor:
        time.sleep(0.001)
        return torch.full((64,), float(place))


torch.manual_seed(0)
layer = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
loader = DataLoader(Samples(), batch_size=16, num_workers=1, persistent_workers=True)
for inputs in loader:  # problem: waiting-for-workers
    loss = layer(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
