"""How far a program has come, in units of its own Python work, read without touching the program.

Python numbers every change of every dictionary by one count (until 3.13), so that a loop that does the same
in every turn moves it by the same amount, traced or not: measured to 0.01 % on a loop of inference. Where
steps cannot be seen, two windows with a different speed are compared by it. Runs in the program's process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["progress_meter"]


def progress_meter() -> Callable[[], int] | None:
    """What reads the count, each reading itself counting one; None where this Python has no such count.

    To be called once the program has imported ctypes, as torch does.
    """
    ctypes: Any = sys.modules.get("ctypes")
    if ctypes is None or sys.implementation.name != "cpython":
        return None
    held: dict[int, object] = {}
    # Behind the object's header and the number of entries.
    place = object.__basicsize__ + ctypes.sizeof(ctypes.c_ssize_t)
    if dict.__basicsize__ < place + 8:
        return None
    tag = ctypes.c_uint64.from_address(id(held) + place)

    def changed() -> int:
        held[0] = object()
        return int(tag.value)

    changed()
    unit = min(after - before for before, after in ((changed(), changed()) for _ in range(8)))
    others: list[dict[int, int]] = [{} for _ in range(16)]
    before = changed()
    for other in others:
        other[0] = 1
    if unit <= 0 or changed() - before < (len(others) + 1) * unit:
        # A number of this dictionary's own, or none.
        return None
    return lambda: changed() // unit
