"""Measuring program: reads past the page cache from one folder's file system, and on to a GPU.

Takes a JSON object as its argument (`folder`, `bytes`, `seconds`, `index` of a GPU or null, the `parent`'s
process number), prints lines of JSON. Its file has no name, so that nothing is left behind however it ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from trackside.machine.ceiling_suite.child import Speed, arguments, cuda_torch, measure_all, repeat, say

__all__: list[str] = []

_BLOCK, _PAGE = 8 << 20, 4096
_DIRECT_STORAGE = "/proc/driver/nvidia-fs"
_READERS = 16
"""Threads of random reads: what data loaders do, and what an NVMe drive needs to show its rate."""


class _File:
    """Random bytes on disk, and reads of them that the page cache does not answer."""

    def __init__(self, folder: str, size: int) -> None:
        self.size = size // _BLOCK * _BLOCK
        self._writer = _nameless(folder)
        pattern = os.urandom(_BLOCK)
        for number in range(self.size // _BLOCK):
            # Other bytes in every block: drives and file systems may compress, or keep equal blocks once.
            os.write(self._writer, number.to_bytes(8, "little") + pattern[8:])
        os.fsync(self._writer)
        self.reader, self.direct = self._open()

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self._writer}"

    def _open(self) -> tuple[int, bool]:
        try:
            opened = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
            buffer = mmap.mmap(-1, _PAGE)
            os.preadv(opened, [buffer], 0)
            return opened, True
        except OSError:
            return os.open(self.path, os.O_RDONLY), False

    def forget(self) -> None:
        """Where reads go through the page cache, drop what it has of this file."""
        if not self.direct:
            os.posix_fadvise(self.reader, 0, 0, os.POSIX_FADV_DONTNEED)

    @property
    def way(self) -> str:
        return "O_DIRECT" if self.direct else "page cache dropped before (the file system has no O_DIRECT)"


def _nameless(folder: str) -> int:
    with contextlib.suppress(OSError):
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    opened, path = tempfile.mkstemp(dir=folder, prefix=".trackside-")
    os.unlink(path)
    return opened


def _speeds(file: _File, seconds: float, index: int | None) -> Iterator[Speed]:
    told = f"{file.size >> 20} MiB of random bytes, {file.way}"
    yield Speed(
        "disk.read.sequential",
        "sequential read",
        "B/s",
        f"blocks of {_BLOCK >> 20} MiB, one thread, {told}",
        partial(_sequential, file, seconds),
    )
    yield Speed(
        "disk.read.random",
        "random read, one at a time",
        "1/s",
        f"4 KiB, one thread, {told}",
        partial(_random, file, seconds, 1),
    )
    yield Speed(
        f"disk.read.random.{_READERS}",
        f"random read, {_READERS} at a time",
        "1/s",
        f"4 KiB, {_READERS} threads, {told}",
        partial(_random, file, seconds, _READERS),
    )
    yield Speed(
        "disk.to-gpu",
        "disk to GPU",
        "B/s",
        f"blocks of {_BLOCK >> 20} MiB through two pinned buffers, reading and copying at once, {told}",
        partial(_to_gpu, file, seconds, index),
    )
    yield Speed(
        "disk.to-gpu.direct",
        "disk to GPU, GPUDirect Storage",
        "B/s",
        f"one cuFileRead of {file.size >> 20} MiB of random bytes into registered memory",
        partial(_by_dma, file, seconds, index),
    )


def _by_dma(file: _File, seconds: float, index: int | None) -> list[float]:
    if index is None:
        raise NotImplementedError("there is no GPU")
    # Without its driver the library copies through the host, which is measured above.
    if not os.path.exists(_DIRECT_STORAGE):
        raise NotImplementedError(f"GPUDirect Storage is not set up: there is no {_DIRECT_STORAGE}")
    torch = cuda_torch()
    if not hasattr(torch.cuda, "gds"):
        raise NotImplementedError(f"torch {torch.__version__} has no torch.cuda.gds; 2.7 has")
    storage: Any = torch.empty(file.size, dtype=torch.uint8, device=f"cuda:{index}").untyped_storage()
    torch.cuda.gds.gds_register_buffer(storage)
    try:
        opened = torch.cuda.gds.GdsFile(file.path, os.O_RDONLY)

        def once() -> float:
            began = time.perf_counter()
            opened.load_storage(storage)
            return time.perf_counter() - began

        return [file.size / t for t in repeat(once, seconds, warm=1)]
    finally:
        torch.cuda.gds.gds_deregister_buffer(storage)


def _sequential(file: _File, seconds: float) -> list[float]:
    buffer = mmap.mmap(-1, _BLOCK)

    def once() -> float:
        file.forget()
        began = time.perf_counter()
        for start in range(0, file.size, _BLOCK):
            os.preadv(file.reader, [buffer], start)
        return time.perf_counter() - began

    return [file.size / t for t in repeat(once, seconds, warm=0)]


def _random(file: _File, seconds: float, threads: int) -> list[float]:
    each = 256
    chance = random.Random(20_26)

    def reads(places: list[int]) -> None:
        buffer = mmap.mmap(-1, _PAGE)
        for place in places:
            os.preadv(file.reader, [buffer], place)

    def once() -> float:
        file.forget()
        pages = file.size // _PAGE
        work = [[chance.randrange(pages) * _PAGE for _ in range(each)] for _ in range(threads)]
        workers = [threading.Thread(target=reads, args=(places,)) for places in work]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return time.perf_counter() - began

    return [threads * each / t for t in repeat(once, seconds, warm=0)]


def _to_gpu(file: _File, seconds: float, index: int | None) -> list[float]:
    if index is None:
        raise NotImplementedError("there is no GPU")
    torch = cuda_torch()
    device = f"cuda:{index}"
    pinned = [torch.empty(_BLOCK + _PAGE, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    # O_DIRECT wants addresses on page boundaries.
    aligned = [t[-t.data_ptr() % _PAGE :][:_BLOCK] for t in pinned]
    views: list[Any] = [t.numpy() for t in aligned]
    target = torch.empty(file.size, dtype=torch.uint8, device=device)
    stream = torch.cuda.Stream(device)
    copied = [torch.cuda.Event() for _ in range(2)]

    def once() -> float:
        file.forget()
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        for number, start in enumerate(range(0, file.size, _BLOCK)):
            turn = number % 2
            copied[turn].synchronize()
            os.preadv(file.reader, [views[turn]], start)
            with torch.cuda.stream(stream):
                target[start : start + _BLOCK].copy_(aligned[turn], non_blocking=True)
                copied[turn].record(stream)
        torch.cuda.synchronize(device)
        return time.perf_counter() - began

    return [file.size / t for t in repeat(once, seconds, warm=1)]


def main() -> None:
    asked = arguments()
    index = asked["index"]
    say(begin="writing the file to read")
    file = _File(str(asked["folder"]), int(str(asked["bytes"])))
    measure_all(_speeds(file, float(str(asked["seconds"])), None if index is None else int(str(index))))
    say(done=True)


if __name__ == "__main__":
    main()
