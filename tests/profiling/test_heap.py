"""Whether a heap gives memory back that the next step takes again, and how it is told not to."""

import os
import subprocess
import sys
from typing import Any

import pytest

from trackside.profiling.heap import takes_memory_anew

MS = 1_000_000
# A block, and a smaller one behind it that holds no top of the heap down: freed together, again and again.
PROGRAM = """
import ctypes, resource, sys
from trackside.profiling.heap import keep_memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
if sys.argv[1] == "kept":
    print(keep_memory())
def faults(turns):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(turns):
        blocks = [libc.malloc(100_000) for _ in range(40)]
        for block in blocks:
            ctypes.memset(block, 1, 100_000)
        for block in blocks:
            libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(2)
print(faults(50))
"""


def ran(how: str, **settings: str) -> list[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        env=plain | settings,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return found.stdout.split()


def test_a_heap_that_is_told_to_keeps_what_is_freed() -> None:
    (free,), (told, kept) = ran("free"), ran("kept")
    # 4 MB in each of 50 turns.
    assert int(free) > 20_000
    assert (told, int(kept) < 1000) == ("True", True)


def test_who_has_set_the_heap_has_decided() -> None:
    told, faults = ran("kept", MALLOC_TRIM_THRESHOLD_="131072")
    assert told == "False"
    assert int(faults) > 20_000


@pytest.mark.parametrize(
    ("faults", "ran_ms", "anew"),
    [(100, 100, False), (5000, 100, True), (5000, 1000, False), (5000, None, True)],
)
def test_page_faults_count_by_the_time_in_which_the_program_ran(
    faults: int, ran_ms: int | None, anew: bool
) -> None:
    core = [] if ran_ms is None else [[0, 0, 0], [200 * MS, ran_ms * MS, 0]]
    window: dict[str, Any] = {"faults": [7, 7 + faults], "core_ns": core}
    assert takes_memory_anew(window | {"began_ns": 0, "closed_ns": 100 * MS}) is anew


def test_of_a_window_that_never_ended_nothing_is_known() -> None:
    assert not takes_memory_anew({"faults": [7], "core_ns": [], "began_ns": 0, "closed_ns": None})
