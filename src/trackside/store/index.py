"""The index over the run folders: what spares reading ten thousand records for one list.

The files of the runs are the truth. Whatever is wrong with the index, they are read instead; it may be
deleted at any time. It is written by those who list, never by those who measure.
"""

import os
import threading
from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trackside.store.entry import ID, KEPT, RECORD_FILE, Entry, read_entry
from trackside.store.files import store_errors

if TYPE_CHECKING:
    from trackside.store.index_file import IndexFile, Signature

__all__ = ["FILE_NAME", "RunIndex"]

FILE_NAME: Final = "index.sqlite3"

# What a column of SQLite can hold: a run of after the year 2262 is read each time.
_MOST: Final = 2**63 - 1

# Of a row that was kept.
_SIGNATURE: Final = slice(KEPT.stop, KEPT.stop + 3)

_PLACE: Final = attrgetter("order_ns", "started_ns", "id")


class RunIndex:
    """The index below one root.

    Args:
        root: the store's folder.
        remark: gets one sentence when the index could not be used, or had to be made anew.
    """

    def __init__(self, root: Path, remark: Callable[[str], None]) -> None:
        self._path = root / FILE_NAME
        self._runs = root / "runs"
        self._remark = remark
        self._listing = threading.Lock()

    def names(self) -> set[str]:
        """The ids of all runs, by the names of their folders alone.

        Raises:
            TracksideError: kind `store`, when the folder cannot be read.
        """
        with store_errors(self._runs, "read"):
            try:
                with os.scandir(self._runs) as found:
                    return {entry.name for entry in found if ID.fullmatch(entry.name)}
            except FileNotFoundError:
                return set()

    def entries(self, newest: int | None = None) -> list[Entry]:
        """All runs, newest first. A final record is read once; runs without one are read each time.

        Args:
            newest: only so many are held against their files, the first ones. What changes a record moves no
                run in the list, so the others are in their places, but may say what they said before.
        """
        # Threads in turn: two that find no index would read all records twice, each at half the speed.
        with self._listing:
            return self._entries(newest)

    def _entries(self, newest: int | None) -> list[Entry]:
        # The index before the names: what is in it and has no name by then is gone, and not new.
        file = self._file()
        kept = file.read() if file is not None else {}
        names = self.names()
        fresh: list[tuple[Entry, Signature]] = []
        found = [Entry(*kept[name][KEPT]) for name in names & kept.keys()]
        found += self._read(names - kept.keys(), fresh)
        found.sort(key=_PLACE, reverse=True)
        looked_at = found if newest is None else found[:newest]
        runs = f"{self._runs}/"
        # Before the record is read: one that changes in between will not fit its signature.
        changed = {
            entry.id
            for entry in looked_at
            if (row := kept.get(entry.id)) is not None
            and row[_SIGNATURE] != _signature(f"{runs}{entry.id}/{RECORD_FILE}")
        }
        if changed:
            found = [entry for entry in found if entry.id not in changed]
            found += self._read(changed, fresh)
            found.sort(key=_PLACE, reverse=True)
        gone = kept.keys() - names
        if file is not None and (fresh or gone):
            file.write(fresh, gone)
        return found

    def _read(self, names: Iterable[str], fresh: list[tuple[Entry, "Signature"]]) -> list[Entry]:
        """What the files of these runs say; `fresh` gets those that the index can keep."""
        found = []
        for name in names:
            signature = _signature(f"{self._runs}/{name}/{RECORD_FILE}")
            entry = read_entry(self._runs / name)
            if entry is None:
                continue
            found.append(entry)
            if entry.final and signature is not None and max(entry.order_ns, entry.started_ns) <= _MOST:
                fresh.append((entry, signature))
        return found

    def _file(self) -> "IndexFile | None":
        try:
            from trackside.store.index_file import IndexFile
        except ImportError as error:
            self._remark(f"there is no index ({error}): the runs' own files are read, which takes longer")
            return None
        return IndexFile(self._path, self._remark)


def _signature(path: str) -> "Signature | None":
    """Inode, size and time of change.

    Every writer makes a new file, so the inode changes where the file system's clock is too coarse to tell.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    # Some file systems use all 64 bits.
    return found.st_ino & _MOST, found.st_size, found.st_mtime_ns & _MOST
