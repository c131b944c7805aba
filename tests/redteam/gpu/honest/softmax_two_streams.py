"""Two halves on two streams, joined on the way in and on the way out: unusual, and right."""

import torch

_side = None


def run(x):
    global _side
    main = torch.cuda.current_stream()
    if _side is None:
        _side = torch.cuda.Stream()
    out = torch.empty_like(x)
    half = x.shape[0] // 2
    _side.wait_stream(main)
    with torch.cuda.stream(_side):
        torch.softmax(x[half:], dim=-1, out=out[half:])
    torch.softmax(x[:half], dim=-1, out=out[:half])
    main.wait_stream(_side)
    return out
