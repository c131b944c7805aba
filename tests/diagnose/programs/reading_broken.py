"""A file that is read in every step. `problem:` names the rule that has to find a line."""

import io
import tempfile
from pathlib import Path

import torch

torch.manual_seed(0)
folder = tempfile.TemporaryDirectory()
path = str(Path(folder.name) / "statistics.pt")
torch.save({"mean": torch.zeros(64)}, path)
shards = []
for number in range(22):
    kept = io.BytesIO()
    torch.save(torch.full((64,), float(number)), kept)
    shards.append(kept)
layer = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, fused=True)
for shard in shards:
    statistics = torch.load(path)  # problem: reading-every-step
    shard.seek(0)
    batch = torch.load(shard) - statistics["mean"]
    loss = layer(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
