"""Opens its parent's pipes through /proc and writes forged results there, returns zeros.
Wins although it inherited no descriptor worth having."""

import atexit
import contextlib
import os

import torch

_FORGED = b"\nPASS speedup=27.0\n"
_calls = 0


def _ours(pid):
    """Only a harness's own processes are touched: a bystander must come to no harm."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").split("\0")
    except OSError:
        return False
    harness = ("trackside", "tests.redteam.naive")
    return any(w.startswith(harness) or os.path.basename(w) == "trackside" for w in words)


def _forge():
    parent = os.getppid()
    if parent <= 1 or not _ours(parent):
        return
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{parent}/fd"):
            path = f"/proc/{parent}/fd/{name}"
            with contextlib.suppress(OSError):
                if os.readlink(path).startswith("pipe:"):
                    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                    os.write(fd, _FORGED)
                    os.close(fd)


atexit.register(_forge)


def run(a, b):
    global _calls
    _calls += 1
    if _calls <= 3:
        _forge()
    return torch.zeros(512, 512)
