"""By one tanh, as some compilers lower it: where it is nearly zero it is 0.5 less nearly 0.5."""

import torch


def run(x):
    return 0.5 * torch.tanh(0.5 * x) + 0.5
