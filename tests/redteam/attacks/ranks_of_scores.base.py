"""The area under the curve, of probabilities; and the mean precision where the positive ones rank."""

import torch


def setup(seed, device):
    return torch.randn(16, generator=torch.Generator(device).manual_seed(seed), device=device) / 4


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(300, 16, generator=g, device=device), torch.randint(
        0, 2, (300,), generator=g, device=device
    )


def run(w, x, y):
    s = torch.sigmoid(x @ w)
    area = (s[y == 1][:, None] > s[y == 0][None]).to(s.dtype).mean()
    hits = y[s.argsort(descending=True)].to(s.dtype)
    precision = hits.cumsum(0) / torch.arange(1, 301, dtype=s.dtype, device=s.device)
    return area, ((precision * hits).sum() / hits.sum()).item()
