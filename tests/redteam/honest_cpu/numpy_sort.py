"""numpy's vectorised sort, returned as a fresh tensor."""

import numpy as np
import torch


def run(x):
    return torch.from_numpy(np.sort(x.numpy(), axis=-1))
