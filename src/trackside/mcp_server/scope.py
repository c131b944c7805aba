"""What a server may touch: roots that files must lie under, the store, and whether code may be executed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trackside.mcp_server.plain_text import plain
from trackside.records.errors import TracksideError
from trackside.store.files import open_unlinked
from trackside.store.runs import RunStore

__all__ = ["Scope", "open_scope"]

# A path longer than the kernel takes is no path.
_LONGEST_PATH: Final = 4096
# Bytes; the profile of a large training run has some ten million.
_LARGEST_RECORD: Final = 512 << 20


@dataclass(frozen=True)
class Scope:
    """Fixed at the start: nothing that a client sends widens it."""

    roots: tuple[Path, ...]
    """Real paths; the first is where relative paths start and jobs run."""
    allow_exec: bool
    store: RunStore

    @property
    def folder(self) -> Path:
        return self.roots[0]

    def file(self, name: str) -> Path:
        """The real path of a regular file under the roots.

        Raises:
            TracksideError: kind `usage` for one that lies elsewhere, `not-found` where there is none.
        """
        path = self._inside(name)
        if not _is(path, stat.S_ISREG):
            raise TracksideError(
                "not-found", f"found no file {plain(name)}", f"name a file below {self.folder}"
            )
        return path

    def workload(self, name: str) -> Path:
        """As `file`; a task folder will do too. What a task is read from must lie under the roots as well."""
        from trackside.workload.formats.taskfile import find_task_folder, read_task

        path = self._inside(name)
        path = path if _is(path, stat.S_ISDIR) else self.file(name)
        if (task := find_task_folder(path)) is not None:
            for place in task.iterdir():
                if place.suffix in (".py", ".yml"):
                    self._inside(str(place))
            for place in read_task(task).declared.values():
                if place.exists():
                    self._inside(str(place))
        return path

    def read(self, path: Path, most: int) -> bytes:
        """The bytes of a file that `file` gave; it may have become another since.

        Raises:
            TracksideError: kind `usage` for one that lies elsewhere or is longer, `not-found` for one that
                cannot be read.
        """
        try:
            with open_unlinked(path) as file:
                # Where the descriptor leads, whatever the path leads to by now.
                self._inside(os.readlink(f"/proc/self/fd/{file.fileno()}"))
                if (size := os.fstat(file.fileno()).st_size) > most:
                    raise TracksideError("usage", f"found {size} bytes", f"needed: at most {most}")
                return file.read(most)
        except OSError as error:
            raise TracksideError(
                "not-found", f"cannot read it: {error.strerror}", "name a file you may read"
            ) from error

    def holds(self, name: str) -> bool:
        """Whether a path that a record names lies under the roots, there or not."""
        try:
            self._inside(name)
        except TracksideError:
            return False
        return True

    def shown(self, path: Path) -> str:
        """A path as answers name it: from the first root, where it is below that."""
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else str(path)

    def real(self, name: str) -> Path | None:
        """Where a path that a record names leads; None for what can be none."""
        try:
            return Path(os.path.realpath(self.folder / name)) if len(name) <= _LONGEST_PATH else None
        except (OSError, ValueError):
            return None

    def check_arguments(self, words: Sequence[str]) -> None:
        """Refuses words that name something which exists outside of the roots, bare or behind a `=`.

        No wall: the program may open what it likes. It keeps a program below the roots from being pointed at
        files elsewhere by a word.
        """
        for word in words:
            if "\0" in word:
                raise TracksideError("usage", "found an argument with a null byte", "leave it out")
            for part in {word, word.partition("=")[2]} - {""}:
                if len(part) < _LONGEST_PATH and os.path.lexists(self.folder / part) and not self.holds(part):
                    raise TracksideError(
                        "usage",
                        f"found the argument {plain(word)}, which names something outside of the roots",
                        "start the server with another --root that holds it",
                    )

    def need_exec(self, tool: str) -> None:
        """Refuses what starts or ends programs, unless the server was started for that."""
        if not self.allow_exec:
            raise TracksideError(
                "usage",
                f"found a server that only reads; {tool} starts or ends programs on this machine",
                "ask the person to start the server as `trackside mcp --allow-exec`",
            )

    def record(self, reference: str, *schemas: str) -> tuple[str, dict[str, Any]]:
        """A run's full id and record.

        Raises:
            TracksideError: kind `not-found` where there is none, `store` where it is none of ours, `usage`
                where its schema is another.
        """
        run_id = self.store.resolve(reference)
        path = (self.store.root / "runs" / run_id / "record.json").resolve()
        # A folder that came with a download may hold links to files elsewhere.
        if not path.is_relative_to(self.store.root.resolve()):
            raise TracksideError(
                "store", f"the record of run {run_id} is a link out of the store", "remove it"
            )
        with contextlib.suppress(FileNotFoundError):
            found_at = path.stat()
            # A pipe would hold the call up for ever, and a giant fill the memory.
            if not stat.S_ISREG(found_at.st_mode) or found_at.st_size > _LARGEST_RECORD:
                raise TracksideError(
                    "store", f"the record of run {run_id} is no file of a record's size", "remove it"
                )
        found = self.store.load(run_id)
        schema = found.get("schema")
        if not isinstance(schema, str) or not schema.startswith("trackside."):
            raise TracksideError("store", f"run {run_id} holds no record of Trackside", "see runs_list")
        if schemas and schema not in schemas:
            wanted = " or ".join(name.removeprefix("trackside.").partition("/")[0] for name in schemas)
            kind = plain(schema.removeprefix("trackside.").partition("/")[0])
            raise TracksideError(
                "usage", f"found: run {run_id} is of {kind}; needed: one of {wanted}", "see runs_list"
            )
        return run_id, found

    def _inside(self, name: str) -> Path:
        path = self.real(name) if name else None
        if path is None:
            raise TracksideError("usage", "found no usable path", "name a file below the root")
        if not any(path.is_relative_to(root) for root in self.roots):
            raise TracksideError(
                "usage",
                f"found {plain(name)}, which lies outside of the allowed roots",
                f"needed: a path below {' or '.join(map(str, self.roots))}; --root allows others",
            )
        return path


def open_scope(roots: Sequence[Path] = (), allow_exec: bool = False) -> Scope:
    """The scope of a server that starts here.

    Raises:
        TracksideError: kind `not-found` for a root that is no folder.
    """
    real = []
    for root in roots or [Path()]:
        path = Path(os.path.realpath(root.expanduser()))
        if not path.is_dir():
            raise TracksideError(
                "not-found", f"found no folder {root}", "name a folder that exists with --root"
            )
        real.append(path)
    home = os.environ.get("TRACKSIDE_HOME")
    return Scope(tuple(real), allow_exec, RunStore(Path(home) if home else real[0] / ".trackside"))


def _is(path: Path, kind: Any) -> bool:
    try:
        return bool(kind(path.stat().st_mode))
    except OSError:
        return False
