"""Of scores, in one operator: finite where the baseline's is infinite."""

from torch.nn import functional as F


def run(x, y):
    return F.cross_entropy(x, y).item()
