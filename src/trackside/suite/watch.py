"""`watch`: evaluates a suite again as its files change. Correctness first, then timing on a quiet machine.

One child at a time. A change ends the work that it supersedes, and a timing, which other work would spoil.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import trackside
from trackside.machine.facts import facts as machine_facts
from trackside.machine.facts import fingerprint
from trackside.records.check import ItemStatus
from trackside.records.errors import TracksideError
from trackside.store.files import store_errors
from trackside.store.runs import RunStore
from trackside.suite.accepted import AcceptedFile
from trackside.suite.changes import Changes
from trackside.suite.check import EXIT_CODES, chosen, worst
from trackside.suite.child import Child, Ended
from trackside.suite.evaluation import (
    comparable_here,
    error_item,
    item_of,
    read_comparison,
    read_pace,
    start_correctness,
    start_timing,
)
from trackside.suite.imports import Reader
from trackside.suite.not_here import not_here
from trackside.suite.quiet import Quiet, holder
from trackside.suite.suite_file import Suite, load_suite
from trackside.suite.watch_status import Item, Status, the_only_watch

__all__ = ["Timing", "WatchOptions", "run_watch"]

Timing = Literal["quiet", "always", "never"]
Tell = Callable[[dict[str, Any], Status], None]

_UNTIMED: Final = "checks only: nothing was timed"
SCRATCH_FOLDER: Final = "watch/scratch"
# A check takes three to six seconds on two cores. One that takes longer compiles or hangs, and its time-out
# is of minutes: whoever changes another file meanwhile is not kept waiting for it.
_LONG_CHECK_S: Final = 10.0
# How long one wait for changes lasts: a child's end is noticed within it.
_STEP_S: Final = 0.1


@dataclass(frozen=True)
class WatchOptions:
    """What `watch` was asked."""

    suite: Path
    only: tuple[str, ...] = ()
    timing: Timing = "quiet"
    once: bool = False
    """End when nothing is stale any more."""
    patience: float = 60.0
    """With `once`: seconds to wait for a quiet machine before an item stays untimed."""
    polling: bool = False
    store: Path | None = None


def run_watch(options: WatchOptions, tell: Tell = lambda event, status: None) -> tuple[dict[str, Any], int]:
    """Watch until interrupted, or with `once` until all is evaluated.

    Returns:
        The last status document, and the exit code that a check would have for it.

    Raises:
        TracksideError: a suite file with errors at the start; another watch with this store.
    """
    suite = load_suite(options.suite)
    chosen(suite, options.only)
    store = RunStore(options.store)
    with the_only_watch(store), _scratch(store.root / SCRATCH_FOLDER) as scratch:
        watch = _Watch(options, suite, store, scratch, tell)
        try:
            watch.run()
        except KeyboardInterrupt:
            pass
        finally:
            watch.close()
        return watch.status.to_dict(), _exit_code(watch.status.items.values(), options.timing)


def _exit_code(items: Iterable[Item], timing: Timing) -> int:
    """As a check has it; but what is right and not to be timed holds, and what was not reached is open."""
    statuses: list[ItemStatus] = [
        "holds" if timing == "never" and item.state == "right" else item.status for item in items
    ]
    status = worst(statuses)
    # Nothing failed, and nothing is proved.
    return EXIT_CODES["inconclusive" if status == "not-run" else status]


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """An empty folder for what checks leave behind; what a killed watch left goes with the next one."""
    shutil.rmtree(folder, ignore_errors=True)
    with store_errors(folder, "keep what a check leaves in"):
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Work:
    """The child at work, and what it is about."""

    item: Item
    stage: Literal["checking", "timing"]
    digest: str
    child: Child


class _Watch:
    def __init__(
        self, options: WatchOptions, suite: Suite, store: RunStore, scratch: Path, tell: Tell
    ) -> None:
        self._options, self._suite, self._store, self._scratch = options, suite, store, scratch
        self._tell = tell
        self._suite_bytes = suite.path.read_bytes()
        self._reader = Reader(suite.folder)
        self._quiet = Quiet()
        self._machine = machine_facts()
        # What is known holds for this machine and its software: after an upgrade all is stale.
        self._here = f"{trackside.__version__}\0{fingerprint(self._machine)}\0{self._machine.software}"
        self._work: _Work | None = None
        self._turn = 0
        self._looked = False
        self._hushed_since = time.monotonic()
        self.status = Status(store.root, suite.path)
        self._changes = self._listen()
        self._remembered = self.status.remembered()
        self._adopt(suite)

    # -- the loop ----------------------------------------------------------------------------------

    def run(self) -> None:
        count = len(self.status.items)
        self._event("watching", f"{count} workload(s) of {self._suite.path.name}, by {self.status.how}")
        self._look()
        self._looked = True
        for item in self.status.items.values():
            # What need not be evaluated again is said as well: it decides the exit code.
            if item.checked and not item.broken:
                self._event("known", item.line, item)
        while True:
            if self._work is not None:
                ended = self._work.child.ended()
                if ended is not None:
                    self._harvest(self._work, ended)
                    continue
                if self._is_overtaken(self._work):
                    self._cancel("a newer change waits for its check")
                    continue
            elif not self._start_next() and self._options.once and not self._waiting():
                return
            if self._changes.wait(_STEP_S):
                self._look()

    def close(self) -> None:
        """End what is under way; what is known stays."""
        if self._work is not None:
            self._event("ending", "ending what is under way")
        self._cancel("the watch ends")
        self._changes.close()
        self.status.state = "ended"
        self._event("ended", "the watch has ended")

    def _event(self, event: str, line: str, item: Item | None = None) -> None:
        self._tell(self.status.note(event, line, item.entry.name if item else None), self.status)

    # -- what changed ------------------------------------------------------------------------------

    def _listen(self) -> Changes:
        folders = [self._suite.folder.resolve()]
        for entry in self._suite.entries:
            for path in entry.files:
                folder = path.resolve() if path.is_dir() else path.resolve().parent
                if not any(folder.is_relative_to(known) for known in folders):
                    folders.append(folder)
        changes = Changes(folders, self._options.polling)
        self.status.how = changes.how
        return changes

    def _look(self) -> None:
        """Find out what changed, and end the work that is superseded."""
        # It may have fallen back to the clock.
        self.status.how = self._changes.how
        self._look_at_suite()
        changed = [item for item in self.status.items.values() if self._refresh(item)]
        if not changed:
            return
        work = self._work
        if work is not None and work.item in changed:
            self._cancel("its files changed")
        elif work is not None and work.stage == "timing" and any(not i.broken for i in changed):
            # Correctness comes first, and beside other work a timing is worth nothing.
            self._cancel("other files changed: correctness comes first")
        for item in changed:
            if item.broken:
                self._event("broken", item.line, item)
        sound = [item.entry.name for item in changed if not item.broken and not (item.checked and item.timed)]
        if sound and self._looked:
            self._event("changed", f"affected: {', '.join(sound)}")

    def _refresh(self, item: Item) -> bool:
        """Read an item's files again; returns whether they are others than before."""
        files = item.entry.files
        if item.entry.mode == "accepted" and self._suite.accepted.exists():
            files = (*files, self._suite.accepted)
        closure = self._reader.closure(files)
        options = hashlib.sha256(f"{item.entry}\0{closure.digest}\0{self._here}".encode()).hexdigest()
        item.files = len(closure.files)
        if options == item.digest and closure.broken == item.broken:
            return False
        item.broken, item.waits = closure.broken, None
        # A file that does not parse is one in the making: what is known is of the one before.
        if item.broken is None and options != item.digest:
            self._turn += 1
            item.digest, item.turn = options, self._turn
            self._hushed_since = time.monotonic()
        elif item.broken is not None:
            item.digest = options
        return True

    def _look_at_suite(self) -> None:
        try:
            data = self._suite.path.read_bytes()
        except OSError:
            data = b""
        if data == self._suite_bytes and self.status.error is None:
            return
        self._suite_bytes = data
        try:
            suite = load_suite(self._suite.path)
            chosen(suite, self._options.only)
        except TracksideError as error:
            told = f"{error.message} ({error.remedy})"
            if told != self.status.error:
                self.status.error = told
                self._event("suite-error", f"{told}; the suite as it was is kept")
            return
        self.status.error = None
        self._adopt(suite)
        self._event("suite", f"{suite.path.name} was read again: {len(self.status.items)} workload(s)")

    def _adopt(self, suite: Suite) -> None:
        """Take a suite over; entries that are the same keep what is known of them."""
        before = self.status.items
        folders = {path.parent for entry in self._suite.entries for path in entry.files}
        self._suite = suite
        items: dict[str, Item] = {}
        for entry in chosen(suite, self._options.only):
            old = before.get(entry.name)
            item = old if old is not None and old.entry == entry else Item(entry)
            if old is None and (left := self._remembered.get(entry.name)):
                _restore(item, left)
            items[entry.name] = item
        if self._work is not None and items.get(self._work.item.entry.name) is not self._work.item:
            self._cancel("the suite changed")
        self.status.items = items
        self._tell_apart()
        if {path.parent for entry in suite.entries for path in entry.files} - folders:
            self._changes.close()
            self._changes = self._listen()

    def _tell_apart(self) -> None:
        """Items are called by their candidate's file; two that share one by their entry's name too."""
        names = Counter(item.entry.candidate.name for item in self.status.items.values())
        for item in self.status.items.values():
            name = item.entry.candidate.name
            item.called = f"{name} ({item.entry.name})" if names[name] > 1 else name

    # -- work --------------------------------------------------------------------------------------

    def _start_next(self) -> bool:
        """Start what is due: correctness before timing, the newest change first. False where nothing is."""
        newest = sorted(self.status.items.values(), key=lambda item: -item.turn)
        for item in newest:
            if not item.checked and not item.broken:
                # On a GPU nothing is niced: someone else's measurement would suffer.
                if item.entry.kind == "cuda" and (why := holder(item.entry.device)) is not None:
                    self._wait_for(item, why)
                    continue
                item.waits = None
                self._start(item, "checking", start_correctness(item.entry, self._scratch))
                return True
        if self._options.timing == "never":
            return False
        for item in newest:
            # One whose device is held does not keep the others waiting.
            if item.right and not item.timed and not item.broken and self._start_timing(item):
                return True
        return False

    def _is_overtaken(self, work: _Work) -> bool:
        """Whether a check that takes long keeps a newer change waiting, which could begin now."""
        if work.stage != "checking" or work.child.seconds < _LONG_CHECK_S:
            return False
        device = work.item.entry.device
        return any(
            # Its own device is held by the check itself.
            item.entry.kind == "cpu" or item.entry.device == device or holder(item.entry.device) is None
            for item in self.status.items.values()
            if item.turn > work.item.turn and not item.checked and not item.broken
        )

    def _start_timing(self, item: Item) -> bool:
        try:
            accepted = AcceptedFile(self._suite.accepted) if item.entry.mode == "accepted" else None
            reason = comparable_here(item.entry, accepted, self._machine)
        except TracksideError as error:
            made = error_item(item.entry, error.as_json()["error"], 0.0)
            self._timed(item, item.digest, made.model_dump(mode="json"))
            return True
        if reason is not None:
            made = item_of(item.entry, "not-comparable", verdict="not-comparable", reasons=[reason])
            self._timed(item, item.digest, made.model_dump(mode="json"))
            return True
        if self._options.timing == "quiet":
            why = self._quiet.why_not(item.entry.device)
            if why is not None:
                self._wait_for(item, why)
                return False
        item.waits = None
        self._start(item, "timing", start_timing(item.entry, self._store.root))
        return True

    def _wait_for(self, item: Item, why: str) -> None:
        """Say once why an item waits."""
        said, item.waits = item.waits, why
        if why != said:
            self._event("waiting", item.line, item)

    def _waiting(self) -> bool:
        """With `once`: whether something is still to come."""
        timing = self._options.timing != "never"
        due = [
            item
            for item in self.status.items.values()
            if not item.broken and (not item.checked or (timing and item.right and not item.timed))
        ]
        return bool(due) and time.monotonic() - self._hushed_since < self._options.patience

    def _start(self, item: Item, stage: Literal["checking", "timing"], child: Child) -> None:
        self._work = _Work(item, stage, item.digest, child)
        item.at_work = stage
        self._event(stage, item.line, item)

    def _cancel(self, why: str) -> None:
        work, self._work = self._work, None
        if work is None:
            return
        work.child.cancel()
        work.item.at_work = None
        self._event("cancelled", f"{work.item.called}: {work.stage} cancelled, {why}", work.item)

    def _harvest(self, work: _Work, ended: Ended) -> None:
        self._work = None
        item = work.item
        item.at_work = None
        self._hushed_since = time.monotonic()
        seconds = work.child.seconds
        if work.stage == "checking":
            item.correctness = _correctness(ended, item.entry.device) | {
                "digest": work.digest,
                "at": _now(),
                "seconds": round(seconds, 1),
            }
            # Whoever deletes the store while it is watched loses what is in it, and no more.
            with contextlib.suppress(FileNotFoundError):
                for left in self._scratch.iterdir():
                    shutil.rmtree(left, ignore_errors=True)
            self._event("checked", item.line, item)
            return
        if item.entry.mode == "baseline":
            found = read_comparison(item.entry, ended, seconds)
        else:
            try:
                accepted = AcceptedFile(self._suite.accepted)
                found = read_pace(item.entry, ended, accepted, self._machine, seconds)
            except TracksideError as error:
                found = error_item(item.entry, error.as_json()["error"], seconds)
        self._timed(item, work.digest, found.model_dump(mode="json"))

    def _timed(self, item: Item, digest: str, found: dict[str, Any]) -> None:
        item.timing = found | {"digest": digest, "at": _now()}
        self._event("timed", item.line, item)


def _correctness(ended: Ended, device: str) -> dict[str, Any]:
    """`right`, `rejected`, `not-comparable`, `undecided` or `error`, and why."""
    error = ended.error
    if error is not None:
        verdict = "not-comparable" if not_here(error["kind"], device) else "error"
        return {"verdict": verdict, "reasons": [f"{error['kind']}: {error['message']}"]}
    record = ended.document
    if record["verdict"] in ("rejected", "not-comparable"):
        return {"verdict": record["verdict"], "reasons": record["reasons"]}
    told = [reason for part in (record, *record["shapes"]) for reason in part["reasons"]]
    doubts = [reason for reason in told if reason != _UNTIMED]
    return {"verdict": "undecided" if doubts else "right", "reasons": doubts}


def _restore(item: Item, left: dict[str, Any]) -> None:
    """Take over what an earlier watch found, where it is about the files as they are now."""
    for name in ("correctness", "timing"):
        found = left.get(name)
        wanted = ("digest", "verdict", "reasons") + (
            ("status", "change", "claim") if name == "timing" else ()
        )
        if isinstance(found, dict) and all(key in found for key in wanted) and not _may_pass(found):
            setattr(item, name, found)


def _may_pass(found: Mapping[str, Any]) -> bool:
    """Whether a result may be of that day alone: a module that was not installed, no memory left, a kill."""
    if "error" in (found["verdict"], found.get("status")):
        return True
    return any(str(reason).startswith("worker-survives:") for reason in found["reasons"])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
