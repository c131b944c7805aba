"""Nothing to find: a loader that indexes whole batches, ahead of time, in a worker that stays."""

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(12000, 256), torch.randint(0, 32, (12000,)))
    batches = BatchSampler(RandomSampler(data), 256, drop_last=True)
    loader = DataLoader(data, sampler=batches, batch_size=None, num_workers=1, persistent_workers=True)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    for rows, labels in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(rows)
        loss = torch.nn.functional.cross_entropy(scores.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
