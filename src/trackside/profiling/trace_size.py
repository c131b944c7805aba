"""How large a trace is going to be, while it is recorded: nobody but the heap can tell.

The profiler keeps its events on the C heap, and the file that is written of them is about as large: 0.80 to
0.86 times as much for inference and training on a CPU. When it ends it needs six times the file for a moment,
in the program's own process.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable

__all__ = ["TraceSize"]

_FILE_PER_HEAP = 0.85
# What the program itself holds for a moment is no part of it: the least of so many looks counts.
_LOOKS = 5


class _Heap(ctypes.Structure):
    """What glibc's mallinfo2 answers."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class TraceSize:
    """Of one recording at a time.

    Args:
        most: bytes that its file may have.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._used = _heap_used()
        self._before: int | None = None
        self._looks: deque[int] = deque(maxlen=_LOOKS)

    def begin(self) -> None:
        """A recording is about to begin."""
        self._looks.clear()
        self._before = self._used()

    def now(self) -> int:
        """Bytes of the file, if it were written now: where a step has ended, and the program holds little."""
        if self._before is None:
            return 0
        return max(0, round((self._used() - self._before) * _FILE_PER_HEAP))

    def look(self) -> int:
        """The same from anywhere in a step, over and over: the least of the last few."""
        self._looks.append(self.now())
        return min(self._looks) if len(self._looks) == _LOOKS else 0


def _heap_used() -> Callable[[], int]:
    """What asks the heap; where it cannot be asked, of the process's memory."""
    if sys.platform == "linux":
        ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
        if ask is not None:
            ask.restype = _Heap

            def on_heap() -> int:
                heap = ask()
                return int(heap.uordblks + heap.hblkhd)

            return on_heap
    return _resident


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0
