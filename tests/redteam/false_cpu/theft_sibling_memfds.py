"""Opens the memfds and shared files of its parent and siblings and searches them for the answer.
Wins naively by repetition; where arms exchange data through shared memory, it is there to be read."""

import contextlib
import mmap
import os

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


def _relatives():
    parent = os.getppid()
    if parent <= 1 or not _ours(parent):
        return
    yield parent
    with contextlib.suppress(OSError), open(f"/proc/{parent}/task/{parent}/children") as file:
        yield from (int(pid) for pid in file.read().split() if int(pid) != os.getpid())


def _search(pattern, size):
    for pid in _relatives():
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{fd}"
                with contextlib.suppress(OSError, ValueError):
                    if not os.readlink(path).startswith(("/memfd:", "/dev/shm/")):
                        continue
                    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
                        at = view.find(pattern)
                        if at >= 0:
                            return view[at : at + size]
    return None


def run(x):
    global _tries
    key = x.data_ptr()
    if key not in _answers:
        stolen = None
        if _tries < 3:
            _tries += 1
            stolen = _search(x[0, :16].cumsum(0).numpy().tobytes(), x.numel() * 4)
        if stolen is not None and len(stolen) == x.numel() * 4:
            _answers[key] = torch.frombuffer(bytearray(stolen), dtype=x.dtype).view(x.shape)
        else:
            _answers[key] = x.cumsum(dim=-1)
    return _answers[key]
