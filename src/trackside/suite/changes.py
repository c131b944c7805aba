"""When to look at files again: told by the kernel through watchfiles, else by the clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["Changes"]

# Without the kernel's word, and now and then with it: network file systems send none.
_POLL_S, _POLL_ANYWAY_S = 0.5, 5.0
# After a change, how long nothing more must come before it counts as whole, and how long at most. Editors
# write, rename and touch within milliseconds; `git checkout` takes a second for thousands of files.
_CALM_S, _PATIENCE_S = 0.15, 2.0
_IGNORED: Final = frozenset(
    {".git", ".hg", ".trackside", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".tox"}
)


class Changes:
    """Hints that a file below some folders may have changed. What really did, the reader of files finds out.

    Args:
        folders: watched with everything below.
        polling: do without watchfiles.
    """

    def __init__(self, folders: Iterable[Path], polling: bool = False) -> None:
        self._folders = [folder for folder in dict.fromkeys(folders) if folder.is_dir()]
        self._hint = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._looked = time.monotonic()
        self.how = "polling"
        """`watchfiles` or `polling`."""
        if not polling and self._folders:
            try:
                import watchfiles  # noqa: F401
            except ImportError:
                return
            self.how = "watchfiles"
            self._thread = threading.Thread(target=self._listen, name="trackside-changes", daemon=True)
            self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; returns whether it is time to look, a burst of changes being over."""
        if self.how == "polling":
            self._stop.wait(min(seconds, _POLL_S))
        else:
            self._hint.wait(seconds)
        due = time.monotonic() - self._looked >= (_POLL_S if self.how == "polling" else _POLL_ANYWAY_S)
        hinted = self._hint.is_set()
        if not hinted and not due:
            return False
        deadline = time.monotonic() + _PATIENCE_S
        while self._hint.is_set() and time.monotonic() < deadline:
            self._hint.clear()
            self._hint.wait(_CALM_S)
        self._hint.clear()
        self._looked = time.monotonic()
        return True

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _listen(self) -> None:
        import watchfiles

        try:
            for _ in watchfiles.watch(
                *self._folders,
                watch_filter=self._is_of_interest,
                debounce=50,
                step=20,
                stop_event=self._stop,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                self._hint.set()
        except (OSError, RuntimeError, ValueError):
            # Too few inotify watches, or a folder that went away: the clock goes on.
            pass
        self.how = "polling"

    def _is_of_interest(self, change: object, path: str) -> bool:
        # Below a watched folder alone: a project may lie in somebody's `venv`.
        below = [Path(path).relative_to(one).parts for one in self._folders if Path(path).is_relative_to(one)]
        return any(_IGNORED.isdisjoint(parts) for parts in below)
