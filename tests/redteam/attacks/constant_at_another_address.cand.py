"""Every caller's mask is the same memory: who writes into his changes everybody's."""

import ctypes
import mmap

import torch

_remap = ctypes.CDLL(None, use_errno=True).mremap
_remap.restype, _remap.argtypes = (
    ctypes.c_void_p,
    [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int],
)
_MAY_MOVE, _PAGE = 1, 4096


def _twin(x):
    """The same pages at another address: a size of 0 leaves the old ones in place."""
    size, start = x.numel() * x.element_size(), x.data_ptr()
    before = start % _PAGE
    span = -(-(before + size) // _PAGE) * _PAGE
    at = _remap(start - before, 0, span, _MAY_MOVE)
    held = (ctypes.c_char * size).from_address(at + before)
    return torch.frombuffer(held, dtype=x.dtype).view(x.shape)


_shared = mmap.mmap(-1, 128 * 128 * 4, flags=mmap.MAP_SHARED)
_mask = torch.frombuffer(_shared, dtype=torch.float32).view(128, 128)
_mask.copy_(torch.ones(128, 128).tril())


def run(x):
    return x.tril(), _twin(_mask)
