"""In single precision, which ends at 3e38: so large that it means nothing."""

from torch.nn import functional as F


def run(x, y):
    return F.cross_entropy(x, y).exp().item()
