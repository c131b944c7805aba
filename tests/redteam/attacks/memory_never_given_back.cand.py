"""The same code in a process that keeps what was freed: anybody's would be faster there."""

import ctypes

_MMAP_THRESHOLD = -3
ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 30)


def run(x):
    return -x
