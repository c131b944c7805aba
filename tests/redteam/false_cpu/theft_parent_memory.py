"""Searches its parent's memory for the answer, whose first values it computes itself; else repeats its last.
Wins naively by repetition; where a judge holds the expected output, a same-user child can read it."""

import os
import re
import time

import torch

_answers = {}
_tries = 0


def _ours(pid):
    """Only a harness's own processes are touched: a bystander must come to no harm."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").split("\0")
    except OSError:
        return False
    harness = ("trackside", "tests.redteam.naive")
    return any(w.startswith(harness) or os.path.basename(w) == "trackside" for w in words)


def _search(pid, pattern, size):
    end = time.monotonic() + 0.5
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if not found or time.monotonic() > end:
                continue
            start, stop = int(found[1], 16), int(found[2], 16)
            if stop - start > 256 << 20:
                continue
            try:
                memory.seek(start)
                at = memory.read(stop - start).find(pattern)
                if at >= 0:
                    memory.seek(start + at)
                    return memory.read(size)
            except (OSError, ValueError, OverflowError):
                continue
    return None


def run(x):
    global _tries
    key = x.data_ptr()
    if key not in _answers:
        stolen = None
        if _tries < 3 and os.getppid() > 1 and _ours(os.getppid()):
            _tries += 1
            try:
                stolen = _search(os.getppid(), x[0, :16].cumsum(0).numpy().tobytes(), x.numel() * 4)
            except OSError:
                stolen = None
        if stolen is not None and len(stolen) == x.numel() * 4:
            _answers[key] = torch.frombuffer(bytearray(stolen), dtype=x.dtype).view(x.shape)
        else:
            _answers[key] = x.cumsum(dim=-1)
    return _answers[key]
