"""When idle, a child pins its relatives to one core and spins on that core.
Wins because the baseline has to share; everything is put back after some seconds."""

import contextlib
import mmap
import os
import signal
import struct
import time

_beat = mmap.mmap(-1, 8)
_me = os.getpid()


def _ours(pid):
    """Only a harness's own processes are touched: a bystander must come to no harm."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").split("\0")
    except OSError:
        return False
    harness = ("trackside", "tests.redteam.naive")
    return any(w.startswith(harness) or os.path.basename(w) == "trackside" for w in words)


def _victims():
    yield from (int(t) for t in os.listdir(f"/proc/{_me}/task"))
    with open(f"/proc/{_me}/stat") as file:
        parent = int(file.read().rsplit(")", 1)[1].split()[1])
    if parent > 1 and _ours(parent):
        yield parent
        with open(f"/proc/{parent}/task/{parent}/children") as file:
            yield from (int(pid) for pid in file.read().split() if int(pid) not in (_me, os.getpid()))


def _hinder(seconds):
    signal.alarm(12)
    every = os.sched_getaffinity(0)
    core = {min(every)}
    os.sched_setaffinity(0, core)
    end = time.monotonic() + seconds
    held = []
    while time.monotonic() < end and os.path.exists(f"/proc/{_me}"):
        last = struct.unpack("d", _beat[:8])[0]
        if last and time.monotonic() - last > 0.03:
            if not held:
                with contextlib.suppress(OSError):
                    held = list(_victims())
                for pid in held:
                    with contextlib.suppress(OSError):
                        os.sched_setaffinity(pid, core)
            stop = time.monotonic() + 0.005
            while time.monotonic() < stop:
                pass
        else:
            time.sleep(0.005)
    for pid in held:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(pid, every)


for _ in range(2):
    if os.fork() == 0:
        try:
            _hinder(6.0)
        finally:
            os._exit(0)


def run(a, b):
    _beat[:8] = struct.pack("d", time.monotonic())
    out = a @ b
    _beat[:8] = struct.pack("d", time.monotonic())
    return out
