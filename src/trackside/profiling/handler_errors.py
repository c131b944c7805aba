"""Which errors that come up in our code are the program's own. Runs in its process: standard library only.

A handler of a signal runs wherever the main thread is, in our code too. What it raises there (a time-out, by
SIGALRM) is meant for the program.
"""

from __future__ import annotations

import signal
from typing import Any

__all__ = ["is_a_handlers"]


def is_a_handlers(error: BaseException) -> bool:
    """Whether a handler of a signal raised it."""
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code(handler: Any) -> object:
    """A function's or a method's; of another object, that of its call."""
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
