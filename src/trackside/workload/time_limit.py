"""Ends code that never does: a baseline's loop on inputs that it was not written for."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["TooLong", "allowed", "time_limit"]

# So many times what is usual may be slow; more is no end in sight.
_SLOWER = 20


class TooLong(BaseException):
    """Raised in the thread whose time is up; no `except Exception` on the way takes it for its own."""


class _Received(BaseException):
    """Takes the place of what is on its way."""


def allowed(least: float, usual: float) -> float:
    """Seconds for what usually takes so many; `least` is for what is usually quick."""
    return max(least, _SLOWER * usual)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooLong` in the calling thread where it is not done by then.

    Between two steps of Python code: one call into a library that never returns is not ended.
    """
    thread = ctypes.c_ulong(threading.get_ident())
    done = threading.Event()
    late = False

    def watch() -> None:
        nonlocal late
        if not done.wait(seconds):
            late = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(TooLong))

    watcher = threading.Thread(target=watch, name="trackside-time-limit", daemon=True)
    watcher.start()
    try:
        yield
    except TooLong as error:
        error.args = (f"not done after {seconds:.0f} s",)
        raise
    finally:
        done.set()
        watcher.join()
        if late:
            # Perhaps not delivered yet: the code ended by itself just then. Taken back, by None, it would let
            # Python 3.11 look for it at every step from then on, and never get beyond one under sys.settrace.
            with suppress(_Received):
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_Received))
                while True:
                    time.sleep(0)
