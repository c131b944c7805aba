"""Child program of `ceilings`: memory and cache bandwidth of the CPUs by libc's own memory functions.

Runs as a script on the standard library alone. Takes a JSON object as its argument and prints one.
"""

import ctypes
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise

# Buffers hold this byte and memchr looks for another, so it always reads to the end. Not zero: pages of zeros
# that were never written may all be one page.
_FILL, _ABSENT = 0x5A, 0x00

# A timed batch of calls on a cache-resident buffer lasts about this long; the calls' own cost is subtracted.
_BATCH_NS = 200_000

# One repetition on memory covers this much, and the next one takes up where it ended: short enough for many,
# and a piece is not met again before all others have pushed it out of the caches.
_WINDOW_BYTES, _THREAD_BYTES = 64 << 20, 8 << 20
# Pieces of a window, timed one by one: about a millisecond each, so that some escape every disturbance.
_PIECE_BYTES = 16 << 20

_libc = ctypes.CDLL(None)  # unlike PyDLL it releases the GIL, so threads run in parallel
_libc.memchr.restype = ctypes.c_void_p
_libc.memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_libc.memcmp.restype = ctypes.c_int
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_libc.memset.restype = ctypes.c_void_p
_libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_libc.memmove.restype = ctypes.c_void_p
_libc.memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def _memchr(address: int, size: int) -> None:
    _libc.memchr(address, _ABSENT, size)


def _memcmp(address: int, size: int) -> None:
    _libc.memcmp(address, address + size // 2, size // 2)


def _memset(address: int, size: int) -> None:
    _libc.memset(address, _FILL, size)


def _memmove(address: int, size: int) -> None:
    _libc.memmove(address + size // 2, address, size // 2)


# Each moves `size` bytes between memory and core; the copy reads one half and writes the other.
_OPERATIONS: dict[str, Callable[[int, int], None]] = {
    "memchr": _memchr,
    "memcmp": _memcmp,
    "memset": _memset,
    "memmove": _memmove,
}


def measure(l2: int, l3: int, memory: int, seconds: float, cpus: list[int] | None) -> dict[str, object]:
    """Rates in bytes a second, every repetition, for each place, operation and number of threads.

    `sizes` are the bytes used for each cache: a quarter of it, or all of `memory` where that is less.
    """
    if cpus:
        os.sched_setaffinity(0, cpus)
    threads = len(cpus) if cpus else len(os.sched_getaffinity(0))
    began = time.perf_counter()
    buffer = mmap.mmap(-1, memory)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        buffer.madvise(mmap.MADV_HUGEPAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    _libc.memset(address, _FILL, memory)

    sizes = {"l2": min(l2 // 4, memory), "l3": min(l3 // 4, memory)}
    rates: dict[str, list[float]] = {}
    # Two rounds at least, then as many as the time allows: rounds spread each operation over the whole time,
    # so that a disturbance of a tenth of a second cannot spoil all repetitions of one.
    rounds = position = 0
    while rounds < 2 or time.perf_counter() - began < seconds:
        for name, operation in _OPERATIONS.items():
            for place, size in sizes.items():
                rates.setdefault(f"{place} {name} 1", []).append(_cached_rate(operation, address, size))
            for count in {1, threads}:
                window = min(memory, max(_WINDOW_BYTES, count * _THREAD_BYTES))
                position = position + window if position + 2 * window <= memory else 0
                found = _memory_rates(operation, address + position, window, count)
                rates.setdefault(f"dram {name} {count}", []).extend(found)
        rounds += 1
    return {"threads": threads, "sizes": sizes, "rates": rates}


def _cached_rate(operation: Callable[[int, int], None], address: int, size: int) -> float:
    operation(address, size)  # brings the buffer into the cache
    once = _batch_ns(operation, address, size, 1)
    calls = max(1, min(64, _BATCH_NS // max(1, once)))
    busy = _batch_ns(operation, address, size, calls)
    empty = _batch_ns(operation, address, 0, calls)
    # A disturbed empty batch must not make the rate absurd: at most half of the time may be the calls' own.
    return calls * size / (max(busy - empty, busy / 2) / 1e9)


def _batch_ns(operation: Callable[[int, int], None], address: int, size: int, calls: int) -> int:
    began = time.perf_counter_ns()
    for _ in range(calls):
        operation(address, size)
    return time.perf_counter_ns() - began


def _memory_rates(operation: Callable[[int, int], None], address: int, size: int, count: int) -> list[float]:
    """Rates of an operation over memory that `count` threads share out: of each piece, or of all threads."""
    barrier = threading.Barrier(count)
    share = size // count
    pieces = max(1, share // _PIECE_BYTES)
    ends: list[list[int]] = [[] for _ in range(count)]

    def work(position: int) -> None:
        times, start, step = ends[position], address + position * share, share // pieces
        barrier.wait()
        times.append(time.perf_counter_ns())
        for piece in range(pieces):
            operation(start + piece * step, step)
            times.append(time.perf_counter_ns())

    others = [threading.Thread(target=work, args=(position,)) for position in range(1, count)]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
    if count == 1:
        return [share / pieces / (end - start) * 1e9 for start, end in pairwise(ends[0])]
    together = max(times[-1] for times in ends) - min(times[0] for times in ends)
    overlap = min(times[-1] for times in ends) - max(times[0] for times in ends)
    if overlap > together / 2:
        # The threads start one after the other, which is no property of the memory: add up their own rates.
        return [sum(share / (times[-1] - times[0]) for times in ends) * 1e9]
    return [count * share / together * 1e9]


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
