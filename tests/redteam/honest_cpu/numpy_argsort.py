"""numpy's vectorised argsort; without ties there is one right answer."""

import numpy as np
import torch


def run(x):
    return torch.from_numpy(np.argsort(x.numpy(), axis=-1))
