"""Writes the result file named on its parent's command line, then kills the parent so that it stays.
Wins where a missing judge is not noticed."""

import itertools
import json
import os
import signal

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


def run(a, b):
    parent = os.getppid()
    if parent > 1 and _ours(parent):
        with open(f"/proc/{parent}/cmdline") as file:
            words = file.read().split("\0")
        for flag, path in itertools.pairwise(words):
            if flag == "--result" and path.endswith("naive-result.json"):
                with open(path, "w") as result:
                    json.dump({"accepted": True, "speedup": 40.0}, result)
        os.kill(parent, signal.SIGKILL)
    return torch.zeros(512, 512)
