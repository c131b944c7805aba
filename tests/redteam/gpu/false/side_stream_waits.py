"""The side stream waits for the caller's stream, as it should, but the caller never waits for it."""

import torch

_side = None


def run(a, b):
    global _side
    if _side is None:
        _side = torch.cuda.Stream()
    _side.wait_stream(torch.cuda.current_stream())
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    with torch.cuda.stream(_side):
        torch.matmul(a, b, out=out)
    return out
