"""Which run came after which, also where the clock was set back between them.

Ids and starts say what the clock said. `last` must be the run that was started last all the same, so a run
that begins before an earlier one by the clock is given a place after it: `order_ns` in its run.json.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from trackside.store.entry import ID, LAST_START_NS, read_entry, started_ns_of_id
from trackside.store.files import write_json

__all__ = ["MARK_FILE", "order_of", "raise_mark"]

MARK_FILE: Final = "order.json"
"""Exists once the clock went back: the latest place given, since the run that has it may be removed."""

_SECOND_NS: Final = 1_000_000_000
_STAMP: Final = slice(len("c-"), len("c-20261115-143012"))


def order_of(root: Path, run_id: str, now_ns: int) -> int:
    """The place of a new run whose folder was just made: the time, or just after the latest run's place."""
    latest_ns = _read_mark(root)
    # Names tell the second, and order like times; only within this second the files must be read.
    stamp = run_id[_STAMP]
    names = [name for name in os.listdir(root / "runs") if name[_STAMP] >= stamp and ID.fullmatch(name)]
    for name in names:
        if name[_STAMP] > stamp:
            latest_ns = max(latest_ns, started_ns_of_id(name) + _SECOND_NS)
        elif name != run_id:
            entry = read_entry(root / "runs" / name)
            latest_ns = max(latest_ns, entry.order_ns if entry is not None else 0)
    if latest_ns < now_ns:
        return now_ns
    place_ns = min(latest_ns + 1, LAST_START_NS - 1)
    if place_ns // _SECOND_NS > now_ns // _SECOND_NS:
        raise_mark(root, place_ns)
    return place_ns


def raise_mark(root: Path, place_ns: int) -> None:
    """Lets later runs come after this place. Without it they still come after all names that are there."""
    if place_ns > _read_mark(root):
        with suppress(OSError):
            write_json(root / MARK_FILE, {"order_ns": place_ns})


def _read_mark(root: Path) -> int:
    try:
        found = orjson.loads((root / MARK_FILE).read_bytes())["order_ns"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return found if isinstance(found, int) and 0 <= found < LAST_START_NS else 0
