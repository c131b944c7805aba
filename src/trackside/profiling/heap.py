"""Whether the C heap gives memory back that the next step takes again. Runs in the program's process.

glibc gives the top of its heap back to the kernel when it is larger than twice the largest block it has seen
freed, and every page of it is new, and zeroed, when a tensor comes to lie there again. Whether a step ends
with so large a top is luck of where small blocks lie: a loop took 0.9 to 1.4 ms in ten runs by itself, and
had no page faults; with our capture around it (beside other work) it took 8 to 12 ms in five of eight.
Recording shapes brought it into that state, in which it stayed when the profiler had ended.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

__all__ = ["KEEPING", "can_keep_memory", "keep_memory", "takes_memory_anew"]

# mallopt's names for them, and the largest that glibc's own rule would come to: after a block of 32 MB.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_BLOCK, _LARGEST_TOP = 32 << 20, 1 << 30
KEEPING = f"MALLOC_MMAP_THRESHOLD_={_LARGEST_BLOCK} MALLOC_TRIM_THRESHOLD_={_LARGEST_TOP}"
"""What has it keep memory from the start."""
# Who sets one of these has decided it already.
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")
# A page fault takes 0.5 to 5 µs here and there, with what giving the page back took before. Of a window that
# spends less than this part on them, they are no part worth speaking of.
_FAULT_NS, _WORTH = 1000.0, 0.03


def takes_memory_anew(window: dict[str, Any]) -> bool:
    """Whether page faults are a part of a window's time, that in which others had its core aside.

    Args:
        window: as `windows.json` has it.
    """
    if len(window.get("faults", ())) < 2 or window.get("closed_ns") is None:
        return False
    ran = window.get("core_ns", ())
    length = ran[-1][1] - ran[0][1] if len(ran) > 1 else window["closed_ns"] - window["began_ns"]
    return bool((window["faults"][-1] - window["faults"][0]) * _FAULT_NS > _WORTH * max(1, length))


def can_keep_memory() -> bool:
    """Whether the heap is glibc's, and nobody has told it anything."""
    settings = any(name in os.environ for name in _SETTINGS)
    return sys.platform.startswith("linux") and not settings and hasattr(ctypes.CDLL(None), "mallopt")


def keep_memory() -> bool:
    """Have the heap keep what is freed from now on, which cannot be undone; False where it cannot be told."""
    if not can_keep_memory():
        return False
    tell = ctypes.CDLL(None).mallopt
    return bool(tell(_MMAP_THRESHOLD, _LARGEST_BLOCK) and tell(_TRIM_THRESHOLD, _LARGEST_TOP))
