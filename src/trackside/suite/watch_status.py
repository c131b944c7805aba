"""What a watch knows, as one document: `watch/status.json` below the store's root, replaced whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from trackside.records.check import ItemStatus
from trackside.records.errors import TracksideError, encodable, printable
from trackside.store.files import read_json, store_errors, write_json
from trackside.store.runs import RunStore, process_mark
from trackside.suite.suite_file import Entry

__all__ = ["STATUS_FILE", "Item", "Status", "sentence", "the_only_watch"]

SCHEMA: Final = "trackside.watch/1"
STATUS_FILE: Final = "watch/status.json"
_KEPT_EVENTS: Final = 50
_LONGEST_LINE: Final = 300


@dataclass
class Item:
    """One entry, and what is known of it. Results carry the digest of the files that they are about."""

    entry: Entry
    called: str = ""
    """What its line begins with: the candidate's file, unless another item has it too."""
    digest: str = ""
    """Of its files and options as they are now, and of the machine and its software."""
    turn: int = 0
    """Counts up with every change: the newest goes first."""
    broken: str | None = None
    files: int = 0
    correctness: dict[str, Any] | None = None
    timing: dict[str, Any] | None = None
    waits: str | None = None
    """Why its timing has not begun."""
    at_work: str | None = None
    """`checking` or `timing`."""

    @property
    def checked(self) -> bool:
        return self.correctness is not None and self.correctness["digest"] == self.digest

    @property
    def timed(self) -> bool:
        return self.timing is not None and self.timing["digest"] == self.digest

    @property
    def right(self) -> bool:
        return self.checked and self.correctness is not None and self.correctness["verdict"] == "right"

    @property
    def state(self) -> str:
        """One word: broken, checking, rejected, undecided, error, right, timing, or how the timing ended."""
        if self.broken:
            return "broken"
        if self.at_work:
            return self.at_work
        if not self.checked:
            return "stale"
        assert self.correctness is not None
        if not self.right:
            return str(self.correctness["verdict"])
        if not self.timed:
            return "right"
        assert self.timing is not None
        return str(self.timing["status"])

    @property
    def status(self) -> ItemStatus:
        """What it would count as in a check; `not-run` while it is under way."""
        known: dict[str, ItemStatus] = {
            "broken": "error",
            "error": "error",
            "rejected": "failed",
            "undecided": "inconclusive",
            "not-comparable": "not-comparable",
            "holds": "holds",
            "failed": "failed",
            "inconclusive": "inconclusive",
        }
        return known.get(self.state, "not-run")

    @property
    def line(self) -> str:
        """`matmul_fused.py: rejected, output differs on row 3 (…)`."""
        told = _told(self)
        # Half-written: what was last known of it still helps.
        if self.broken and self.correctness is not None:
            told += f"; before that: {self.correctness['verdict']}"
        return printable(f"{self.called or self.entry.candidate.name}: {told}")[:_LONGEST_LINE]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.entry.name,
            "mode": self.entry.mode,
            "baseline": str(self.entry.baseline),
            "candidate": str(self.entry.candidate),
            "device": self.entry.device,
            "state": self.state,
            "line": self.line,
            "broken": self.broken,
            "waits": self.waits,
            "files": self.files,
            "digest": self.digest,
            "correctness": self.correctness,
            "timing": self.timing,
        }


def _told(item: Item) -> str:
    if item.broken:
        return f"broken, {item.broken}"
    if item.state == "checking":
        return "checking its outputs"
    if item.state == "stale":
        return f"waits: {item.waits}" if item.waits else "waits for its turn"
    if item.state == "timing":
        return "right, being timed"
    assert item.correctness is not None
    if not item.right:
        return f"{item.correctness['verdict']}, {sentence(item.correctness['reasons'])}"
    if item.timing is None or not item.timed:
        return "right" + (f", timing waits: {item.waits}" if item.waits else "")
    change, verdict = item.timing["change"], item.timing["verdict"] or item.timing["status"]
    # Of the last two no figure holds, even where there is one.
    if change is None or verdict in ("rejected", "not-comparable"):
        return f"{verdict}, {sentence(item.timing['reasons'])}"
    interval = f"{change['ratio']:.3f}× [{change['low']:.3f}, {change['high']:.3f}]"
    claim = item.timing["claim"]
    kept = {"holds": "holds", "failed": "FAILS"}.get(item.timing["status"], "is not decided")
    return f"right, {verdict} {interval}, claim `{claim}` {kept}"


_DIFFERS: Final = re.compile(
    r"(?P<where>[^\s:]*\[(?P<row>\d+)(?:, \d+)*\]): expected (?P<wanted>\S+), found (?P<found>\S+)"
)


def sentence(reasons: list[str]) -> str:
    """The first reason as a person would put it: which row of an output differs, else as it is."""
    if not reasons:
        return "no reason given"
    found = _DIFFERS.search(reasons[0])
    if found is None:
        return reasons[0]
    return (
        f"output differs on row {found['row']} ({found['where']}: expected {found['wanted']}, "
        f"found {found['found']})"
    )


@dataclass
class Status:
    """Everything that a watch tells: written at every event, read by whoever wants to know."""

    root: Path
    suite: Path
    how: str = ""
    items: dict[str, Item] = field(default_factory=dict)
    error: str | None = None
    """What is wrong with the suite file since it was last read whole."""
    state: str = "watching"
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_KEPT_EVENTS))
    started: str = field(default_factory=lambda: _now())

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "suite": str(self.suite),
            "state": self.state,
            "pid": os.getpid(),
            "process": process_mark(os.getpid()),
            "how": self.how,
            "started": self.started,
            "updated": _now(),
            "error": self.error,
            "items": [item.to_dict() for item in self.items.values()],
            "events": list(self.events),
        }

    def note(self, event: str, line: str, name: str | None = None) -> dict[str, Any]:
        """An event, kept and written with everything else."""
        made = {"time": _now(), "event": event, "name": name, "line": printable(line)[:_LONGEST_LINE]}
        self.events.append(made)
        self.write()
        return made

    def write(self) -> None:
        # A full disk is no reason to stop watching: the screen still has it.
        with contextlib.suppress(OSError):
            document: dict[str, Any] = encodable(self.to_dict())
            write_json(self.root / STATUS_FILE, document)

    def remembered(self) -> Mapping[str, Any]:
        """What an earlier watch of this suite left, by entry's name; empty where there is nothing of use."""
        try:
            found = read_json(self.root / STATUS_FILE)
        except (FileNotFoundError, TracksideError):
            return {}
        if found.get("schema") != SCHEMA or found.get("suite") != str(self.suite):
            return {}
        items = found.get("items")
        return {
            one["name"]: one
            for one in (items if isinstance(items, list) else [])
            if isinstance(one, dict) and isinstance(one.get("name"), str)
        }


@contextlib.contextmanager
def the_only_watch(store: RunStore) -> Iterator[None]:
    """Have the store's status file for oneself.

    Raises:
        TracksideError: kind `busy`, while another watch has it.
    """
    folder = (store.root / STATUS_FILE).parent
    with store_errors(folder, "keep the status of a watch in"):
        store.create_root()
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TracksideError(
                "busy",
                f"found another `trackside watch` at work with {store.root}",
                f"read what it says in {store.root / STATUS_FILE}, or end it",
            ) from None
        yield
    finally:
        os.close(descriptor)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
