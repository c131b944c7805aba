"""Class scores reduced on the device, then handed over in pinned host memory, as a server does."""

import torch


def inputs(seed, device):
    shape = (4096, 8192) if str(device).startswith("cuda") else (8, 40)
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(*shape, generator=g, device=device),)


def run(x):
    result = torch.log(torch.exp(x - x.amax(dim=1, keepdim=True)).sum(dim=1)) + x.amax(dim=1)
    host = torch.empty(result.shape, dtype=result.dtype, pin_memory=x.is_cuda)
    host.copy_(result)
    return host
