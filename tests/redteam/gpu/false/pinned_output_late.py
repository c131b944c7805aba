"""The copy to the host is only enqueued: who reads right after `run` has what was there before."""

import torch


def run(x):
    best = torch.linalg.vector_norm(x, torch.inf, dim=1)
    host = torch.empty(best.shape, dtype=best.dtype, pin_memory=x.is_cuda)
    host.copy_(best, non_blocking=True)
    return host
