"""A detached process waits up to 20 s for the judge's result file and rewrites its verdict.
Wins where a descendant outlives the judge and may write where the judge writes."""

import contextlib
import glob
import json
import os
import re
import signal
import time

import torch


def _ours(pid):
    """Only a harness's own processes are touched: a bystander must come to no harm."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").split("\0")
    except OSError:
        return False
    harness = ("trackside", "tests.redteam.naive")
    return any(w.startswith(harness) or os.path.basename(w) == "trackside" for w in words)


def _rewrite(path):
    with open(path) as file:
        text = file.read()
    if path.endswith("naive-result.json"):
        json.loads(text)
        text = json.dumps({"accepted": True, "speedup": 33.0})
    else:
        text = re.sub(r'"verdict": ?"[a-z-]+"', '"verdict":"faster"', text)
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def _lie_in_wait(parent, words, homes):
    os.setsid()
    signal.alarm(20)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    since = time.time()
    targets = [w for w in words if w.endswith("naive-result.json")]
    while os.path.exists(f"/proc/{parent}") or time.time() < since + 2:
        for home in homes:
            targets += glob.glob(os.path.join(home, "runs", "*", "record.json"))
        for path in targets:
            with contextlib.suppress(OSError, ValueError):
                if os.path.getmtime(path) >= since:
                    _rewrite(path)
        time.sleep(0.002)


_parent = os.getppid()
if _parent > 1 and _ours(_parent):
    _homes = []
    with contextlib.suppress(OSError):
        _homes.append(os.path.join(os.readlink(f"/proc/{_parent}/cwd"), ".trackside"))
    with open(f"/proc/{_parent}/cmdline") as _file:
        _words = _file.read().split("\0")
    if os.fork() == 0:
        try:
            if os.fork() == 0:
                _lie_in_wait(_parent, _words, _homes)
        finally:
            os._exit(0)


def run(a, b):
    return torch.zeros(512, 512)
