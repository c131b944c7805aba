"""Computes honestly, then leaves milliseconds of copying on a side stream to slow whoever runs next."""

import torch

_hog = {}


def run(a, b):
    if not _hog:
        _hog.update(
            side=torch.cuda.Stream(),
            source=torch.empty(1 << 28, dtype=torch.uint8, device=a.device),
            target=torch.empty(1 << 28, dtype=torch.uint8, device=a.device),
        )
    out = a @ b
    _hog["side"].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(_hog["side"]):
        for _ in range(64):  # 0.13 ms each
            _hog["target"].copy_(_hog["source"])
    return out
