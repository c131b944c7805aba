"""A thread of ours in the program that looks at the clock now and then.

Not one of `threading`: the program would find it among its own. It takes no part in a fork.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable

__all__ = ["Watcher"]


class Watcher:
    """Calls `look` until it is closed; `look` returns the seconds until the next time, None to end."""

    def __init__(self, look: Callable[[], float | None]) -> None:
        self._look = look
        self._closing = _thread.allocate_lock()

    def start(self, after_s: float) -> None:
        self._closing.acquire()
        _thread.start_new_thread(self._run, (after_s,))

    def close(self) -> None:
        if self._closing.locked():
            self._closing.release()

    def _run(self, pause_s: float) -> None:
        while not self._closing.acquire(True, pause_s):
            following = self._look()
            if following is None:
                return
            pause_s = following
        self._closing.release()
