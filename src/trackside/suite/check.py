"""`check`: a suite evaluated once, entry by entry; an interrupt or a kill keeps what is done."""

from __future__ import annotations

import contextlib
import difflib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import trackside
from trackside.machine.facts import facts as machine_facts
from trackside.records.base import RecordStatus
from trackside.records.check import CheckItem, CheckRecord, ItemStatus
from trackside.records.errors import TracksideError
from trackside.store.files import store_errors, write_json
from trackside.store.runs import Run, RunStore
from trackside.suite.accepted import AcceptedFile
from trackside.suite.child import Child
from trackside.suite.evaluation import (
    comparable_here,
    error_item,
    item_of,
    read_comparison,
    read_pace,
    start_timing,
)
from trackside.suite.suite_file import Entry, Suite

__all__ = ["EXIT_CODES", "ORDER", "CheckOptions", "chosen", "run_check", "worst"]

Progress = Callable[[dict[str, Any]], None]

ORDER: Final[tuple[ItemStatus, ...]] = (
    "failed",
    "error",
    "not-run",
    "inconclusive",
    "not-comparable",
    "accepted",
    "holds",
)
"""From worst to best. A failed claim is known to be one, so it comes before what could not be found out."""

EXIT_CODES: Final[dict[ItemStatus, int]] = {
    "failed": 1,
    "error": 2,
    "not-run": 130,
    "inconclusive": 4,
    "not-comparable": 3,
    "accepted": 0,
    "holds": 0,
}

ITEMS_FILE: Final = "items.json"
"""Beside the record: what was found when it was last written."""

# A child gets this many times its budget and this much on top, beside its build's time, before it is ended.
_PATIENCE, _GRACE_S = 3.0, 300.0
# Seldom enough not to disturb what is being measured.
_POLL_S: Final = 0.2


@dataclass(frozen=True)
class CheckOptions:
    """What `check` was asked."""

    suite: Suite
    only: tuple[str, ...] = ()
    accept: bool = False
    store: Path | None = None


def chosen(suite: Suite, only: Sequence[str]) -> list[Entry]:
    """The entries to evaluate: all, or those named; the name of a table stands for all its candidates.

    Raises:
        TracksideError: kind `usage`, for a name that is not there; the nearest is named.
    """
    if not only:
        return list(suite.entries)
    for name in only:
        if not any(_is_called(entry, name) for entry in suite.entries):
            known = [entry.name for entry in suite.entries]
            near = difflib.get_close_matches(name, known, 3, 0.4) or known[:5]
            raise TracksideError(
                "usage", f"found no workload `{name}` in {suite.path.name}", f"try one of: {', '.join(near)}"
            )
    return [entry for entry in suite.entries if any(_is_called(entry, name) for name in only)]


def _is_called(entry: Entry, name: str) -> bool:
    return entry.name == name or entry.name == f"{name}.{entry.candidate.stem}"


def worst(statuses: Sequence[ItemStatus]) -> ItemStatus:
    """The status that speaks for all."""
    return min(statuses, key=ORDER.index, default="holds")


def run_check(options: CheckOptions, progress: Progress = lambda event: None) -> CheckRecord:
    """Evaluate the entries one after another, and leave a record.

    Raises:
        TracksideError: wrong use, or accepted ratios that are needed and not readable; nothing has run then.
    """
    entries = chosen(options.suite, options.only)
    if options.accept:
        entries = [entry for entry in entries if entry.mode == "accepted"]
        if not entries:
            raise TracksideError(
                "usage",
                "found no workload with `file` and `reference`: there is nothing to accept",
                "a candidate is held against its baseline's code: run `trackside check`",
            )
    needed = any(entry.mode == "accepted" for entry in entries)
    accepted = AcceptedFile(options.suite.accepted) if needed else None
    store = RunStore(options.store)
    run = store.new_run("check")
    book = _Book(options, run, store, accepted)
    child: Child | None = None
    try:
        for number, entry in enumerate(entries):
            progress({"phase": "entry", "entry": entry, "number": number + 1, "count": len(entries)})
            known = None if options.accept else _known(entry, book)
            if known is None:
                child = start_timing(entry, store.root)
                known = _wait(entry, child, book, progress)
                child = None
            book.add(known)
            progress({"phase": "item", "item": book.items[-1], "entry": entry})
    except KeyboardInterrupt:
        book.interrupted = True
        if child is not None:
            child.cancel()
        for entry in entries[len(book.items) :]:
            book.add(item_of(entry, "not-run", reasons=["interrupted before it was evaluated"]))
    except BaseException:
        if child is not None:
            child.cancel()
        # A disk that took an item may take no more; then items.json has it.
        with contextlib.suppress(TracksideError):
            book.close("failed")
        raise
    return book.close()


def _known(entry: Entry, book: _Book) -> CheckItem | None:
    """What is known of an entry without timing it, which would take minutes and change nothing; else None."""
    try:
        reason = comparable_here(entry, book.accepted, book.machine)
    except TracksideError as error:
        return error_item(entry, error.as_json()["error"], 0.0)
    if reason is None:
        return None
    return item_of(entry, "not-comparable", verdict="not-comparable", reasons=[reason])


def _wait(entry: Entry, child: Child, book: _Book, progress: Progress) -> CheckItem:
    said = ""
    waited = 0.0
    while (ended := child.wait(_POLL_S)) is None:
        line = child.last_line()
        if line != said:
            progress({"phase": "line", "entry": entry, "line": line})
            said = line
        if line.startswith("waiting"):
            # For another measurement's end, which is nobody's fault.
            waited += _POLL_S
        limit = _PATIENCE * entry.budget + 2 * entry.build_timeout + _GRACE_S
        if child.seconds - waited > limit:
            child.cancel()
            error = {
                "kind": "timeout",
                "message": f"no result after {child.seconds:.0f} s",
                "remedy": "run it by hand with `trackside compare`",
            }
            return error_item(entry, error, child.seconds)
    if entry.mode == "baseline":
        return read_comparison(entry, ended, child.seconds)
    assert book.accepted is not None
    accepting = book.options.accept
    item = read_pace(entry, ended, book.accepted, book.machine, child.seconds, accepting)
    if item.status == "accepted":
        # At once: what was accepted survives whatever happens to the next one.
        book.accepted.write()
    return item


class _Book:
    """What was found so far: in the run's folder at once, and in its record at the end."""

    def __init__(
        self, options: CheckOptions, run: Run, store: RunStore, accepted: AcceptedFile | None
    ) -> None:
        self.options, self.accepted = options, accepted
        self._run, self._store = run, store
        self.machine = machine_facts()
        self.items: list[CheckItem] = []
        self.interrupted = False
        self._began = time.monotonic()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")

    def add(self, item: CheckItem) -> None:
        self.items.append(item)
        # Minutes of work each: whoever kills this process still finds them.
        with store_errors(self._run.folder, "write results to"):
            write_json(self._run.folder / ITEMS_FILE, self._record().to_dict() | {"status": "running"})

    def close(self, status: RecordStatus = "done") -> CheckRecord:
        record = self._record().model_copy(update={"status": status})
        self._store.write_record(self._run, record.to_dict())
        return record

    def _record(self) -> CheckRecord:
        statuses = [item.status for item in self.items]
        verdict = worst(statuses)
        # Ctrl-C is what ended it, whatever was found before.
        code = EXIT_CODES["not-run"] if self.interrupted else EXIT_CODES[verdict]
        has_accepted = any(item.mode == "accepted" for item in self.items)
        return CheckRecord(
            schema="trackside.check/1",
            run_id=self._run.id,
            verdict=verdict,
            exit_code=code,
            counts={status: statuses.count(status) for status in ORDER if status in statuses},
            suite=str(self.options.suite.path),
            accepted=str(self.options.suite.accepted) if has_accepted else None,
            items=self.items,
            machine={
                "cpu": self.machine.cpu.model,
                "gpus": [gpu.name for gpu in self.machine.gpus],
                "torch": self.machine.software.torch,
            },
            interrupted=self.interrupted,
            started=self._started,
            seconds=time.monotonic() - self._began,
            version=trackside.__version__,
        )
