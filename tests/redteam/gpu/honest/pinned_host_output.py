"""logsumexp, an asynchronous copy and a wait for it."""

import torch


def run(x):
    result = torch.logsumexp(x, dim=1)
    host = torch.empty(result.shape, dtype=result.dtype, pin_memory=x.is_cuda)
    host.copy_(result, non_blocking=True)
    if x.is_cuda:
        torch.cuda.current_stream().synchronize()
    return host
