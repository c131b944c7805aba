"""The same sum in single precision.

Seven digits instead of fifteen in the double that the caller gets. A plain float is judged as if its type
were float32: with one element, 128 epsilons of that.
"""

import torch


def run(x, y):
    return float(torch.dot(x, y))
