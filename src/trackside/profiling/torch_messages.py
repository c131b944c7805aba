"""What torch's C++ parts write to stderr. Runs in the program's process: standard library, and its torch.

While allocations are recorded its allocator for the CPU warns, once in a thousand times, of memory that it
gives back and did not see being taken. That is not the program's to say.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

__all__ = ["TorchMessages"]

_LIBRARY, _LEVEL = os.path.join("lib", "libc10.so"), "FLAGS_caffe2_log_level"
_WARNINGS, _ERRORS = 1, 2


class TorchMessages:
    """The least level of messages that are written; errors always are."""

    def __init__(self) -> None:
        self._level: Any = None
        self._minds_forks = False

    def errors_only(self) -> bool:
        """Until `as_before`. False, and nothing is changed, where that is not possible, or not wanted.

        Somebody who has asked for more than warnings (TORCH_CPP_LOG_LEVEL) is to get them.
        """
        if self._level is not None:
            return True
        torch: Any = sys.modules["torch"]
        try:
            library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), _LIBRARY))
            level = ctypes.c_int.in_dll(library, _LEVEL)
        except (OSError, ValueError):
            return False
        if level.value != _WARNINGS:
            return level.value >= _ERRORS
        level.value = _ERRORS
        self._level = level
        if not self._minds_forks:
            self._minds_forks = True
            # A worker that the program forks meanwhile is not recorded.
            os.register_at_fork(after_in_child=self.as_before)
        return True

    def as_before(self) -> None:
        if self._level is not None:
            self._level.value = _WARNINGS
            self._level = None
