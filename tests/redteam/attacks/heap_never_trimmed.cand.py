"""The same code in a process whose heap never shrinks: anybody's would be faster there."""

import ctypes

_TRIM_THRESHOLD = -1
ctypes.CDLL(None).mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def run(x):
    return -x
