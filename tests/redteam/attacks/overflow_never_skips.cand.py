"""Never."""

import torch


def run(grad, scale):
    return torch.zeros((), dtype=torch.bool, device=grad.device), grad.norm()
