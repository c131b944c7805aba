"""A thread spins in Python while the candidate is not being called, for five seconds in all.
Wins because every return of the baseline to the interpreter waits for the lock."""

import threading
import time

_last = None


def _hog():
    end = None
    while end is None or time.monotonic() < end:
        if _last is not None and time.monotonic() - _last > 0.02:
            end = end or time.monotonic() + 5.0
            for _ in range(100_000):
                pass
        else:
            time.sleep(0.005)


threading.Thread(target=_hog, daemon=True).start()


def run(a, b):
    global _last
    _last = time.monotonic()
    out = a @ b
    _last = time.monotonic()
    return out
