"""Which runs go, by age, number and size, and how: renamed away first, so that no half run is left."""

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from trackside.records.errors import TracksideError
from trackside.store.entry import START_FILE, RunSummary, read_entry
from trackside.store.files import folder_lock, fsync_folder, store_errors
from trackside.store.runs import RunStore
from trackside.store.selection import RunFilter

__all__ = ["Removal", "Retention", "chosen", "folder_bytes", "in_use", "named", "remove", "sweep_removed"]

_REMOVED: Final = ".removed-"

# From mkdir to the first write takes milliseconds; a folder without run.json may be a run that just begins.
_BEGINNING_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Retention:
    """Rules. What is running stays, and so do the newest `keep_last`, whatever the other two say."""

    before_ns: int | None = None
    """What started earlier goes."""
    most_bytes: int | None = None
    """The oldest go until what is left takes no more than this."""
    keep_last: int = 0
    """On its own, all but these go."""


@dataclass(frozen=True)
class Removal:
    """A run that is removed, or would be."""

    run: RunSummary
    bytes: int


def chosen(store: RunStore, rules: Retention, clock: Callable[[], int] = time.time_ns) -> list[Removal]:
    """What the rules take, oldest first."""
    runs = store.find(RunFilter()).runs
    removable = [run for run in reversed(runs[rules.keep_last :]) if in_use(run) is None]
    sizes = {run.id: folder_bytes(run.folder) for run in runs}
    if rules.before_ns is not None:
        gone = _begun_before(runs, rules.before_ns, clock())
    else:
        gone = {run.id for run in removable} if rules.most_bytes is None else set()
    gone &= {run.id for run in removable}
    if rules.most_bytes is not None:
        left = sum(size for run_id, size in sizes.items() if run_id not in gone)
        for run in removable:
            if left > rules.most_bytes and run.id not in gone:
                gone.add(run.id)
                left -= sizes[run.id]
    return [Removal(run, sizes[run.id]) for run in removable if run.id in gone]


def _begun_before(runs: Sequence[RunSummary], before_ns: int, now_ns: int) -> set[str]:
    """Runs that began before a time; not one that says so and was started after one that is younger.

    That one had a clock that was set back: it would be the newest that goes. Clocks that were ahead prove
    nothing: what came after such a run is judged by its own.
    """
    found: set[str] = set()
    for run in reversed(runs):
        started_ns = int(datetime.fromisoformat(run.started).timestamp()) * 1_000_000_000
        if before_ns <= started_ns <= now_ns:
            break
        if started_ns < before_ns:
            found.add(run.id)
    return found


def named(store: RunStore, references: list[str]) -> list[Removal]:
    """The runs that references stand for, each once.

    Raises:
        TracksideError: kind `not-found`, when one of them fits none or several; kind `busy`, when one runs.
    """
    ids = dict.fromkeys(store.resolve(reference) for reference in references)
    by_id = {run.id: run for run in store.find(RunFilter()).runs}
    found = []
    for run_id in ids:
        run = by_id.get(run_id)
        if run is None:
            continue  # another process removed it in between
        use = in_use(run)
        if use is not None:
            raise TracksideError(
                "busy",
                f"will not remove run {run_id}: {use}",
                f"wait for its end, or end it; if you know that nobody is at work there, delete {run.folder}",
            )
        found.append(Removal(run, folder_bytes(run.folder)))
    return found


def remove(store: RunStore, removals: list[Removal]) -> list[Removal]:
    """Removes runs and returns those that went; one that began to run meanwhile, or is gone, is left out.

    Raises:
        TracksideError: kind `store`, when the disk refuses; what went before stays away.
    """
    done = []
    for removal in removals:
        with store_errors(removal.run.folder, "remove"):
            if _renamed_away(removal.run.folder):
                done.append(removal)
    sweep_removed(store)
    return done


def sweep_removed(store: RunStore) -> None:
    """Deletes what was renamed away, also by processes that were killed before they could."""
    with contextlib.suppress(FileNotFoundError), os.scandir(store.runs) as found:
        for entry in found:
            if entry.name.startswith(_REMOVED):
                # Another process may be deleting the same. What had a run's name may be a file, or a link,
                # whose target stays.
                with contextlib.suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                shutil.rmtree(entry.path, ignore_errors=True)


def in_use(run: RunSummary) -> str | None:
    """Why a run must stay; None where nobody is at work in it."""
    if run.state == "running":
        return run.reason
    if run.state == "died" and not (run.folder / START_FILE).exists():
        with contextlib.suppress(OSError):
            age = time.time() - run.folder.stat().st_mtime
            if 0 <= age < _BEGINNING_SECONDS:
                return "it may just have begun"
    return None


def folder_bytes(folder: Path) -> int:
    """The sizes of all files in it, or of the file that it is; links count as themselves."""
    total = 0
    if os.path.isfile(folder):
        with contextlib.suppress(OSError):
            total = os.lstat(folder).st_size
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _renamed_away(folder: Path) -> bool:
    """In one step from a whole run to none; what has the other name is no run, and deleted later."""
    aside = folder.with_name(f"{_REMOVED}{folder.name}-{secrets.token_hex(4)}")
    try:
        # The lock is for a supervisor that writes the last word of a run at this moment: then it stays.
        # Nobody writes into a file that only has a run's name.
        is_file = folder.exists() and not folder.is_dir()
        with contextlib.nullcontext() if is_file else folder_lock(folder, wait=False):
            entry = read_entry(folder)
            if entry is None or in_use(entry.summary(folder.parent)) is not None:
                return False
            os.rename(folder, aside)
    except (FileNotFoundError, BlockingIOError):
        return False
    except OSError as error:
        # Whoever removed it first has put nothing in its place.
        if error.errno == errno.ENOTDIR and not folder.exists():
            return False
        raise
    fsync_folder(folder.parent)
    return True
