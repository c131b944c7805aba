"""Memory that two processes share: an arena of slots, each with inputs, outputs and a guard.

On a CPU it is a memfd mapped and pre-faulted in both; on a GPU it is device memory of the reference
process, opened by the worker through CUDA IPC, so that no byte crosses the bus during a trial.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from trackside.workload.cuda import Driver

__all__ = [
    "ALIGN",
    "KEPT_HEAP_BYTES",
    "LARGE_BLOCK_BYTES",
    "Arena",
    "ArenaShape",
    "CudaMemory",
    "HostMemory",
    "Memory",
    "align",
    "arena_from_message",
    "byte_at",
    "fill",
    "host_file",
    "same_bytes",
    "snapshot",
]

ALIGN = 256
LARGE_BLOCK_BYTES, KEPT_HEAP_BYTES = 32 << 20, 64 << 20
"""From where on glibc gives a block memory of its own, and how much of the heap it keeps: where its own
adjusting ends in a process that once freed a large block. Left to itself, whether a freed block goes back to
the system, to be faulted in anew by the next call, depends on what the process freed before: one function
took 2.8 ms in one process and 5.6 ms in another."""
_PAGE = 4096
_GUARD = b"\xa5\x5a" * (_PAGE // 2)

# PyDLL keeps the interpreter lock: no Python thread of the candidate runs while outputs are copied.
_memmove = ctypes.PyDLL(None).memmove
_memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_memmove.restype = ctypes.c_void_p
_copied = ctypes.PyDLL(None).PyBytes_FromStringAndSize
_copied.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
_copied.restype = ctypes.py_object
_memset = ctypes.PyDLL(None).memset
_memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_memset.restype = ctypes.c_void_p
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def align(size: int, to: int = ALIGN) -> int:
    return -(-size // to) * to


def fill(start: int, byte: int, size: int) -> None:
    """Write one byte all over a place in host memory."""
    _memset(start, byte, size)


def snapshot(start: int, size: int) -> bytes:
    """What lies in host memory now."""
    found: bytes = _copied(start, size)
    return found


def byte_at(address: int) -> int:
    return ctypes.c_ubyte.from_address(address).value


def same_bytes(first: int, second: int, size: int) -> bool:
    """Whether two places in host memory hold the same, without copying either."""
    return bool(_memcmp(first, second, size) == 0)


@dataclass(frozen=True)
class ArenaShape:
    """Sizes in bytes of one arm's arena."""

    slots: int
    input_bytes: int
    output_bytes: int

    @property
    def slot_bytes(self) -> int:
        return align(self.input_bytes, _PAGE) + align(self.output_bytes, _PAGE) + _PAGE

    @property
    def total(self) -> int:
        return self.slot_bytes * self.slots

    def inputs_at(self, slot: int) -> int:
        return slot * self.slot_bytes

    def outputs_at(self, slot: int) -> int:
        return slot * self.slot_bytes + align(self.input_bytes, _PAGE)

    def guard_at(self, slot: int) -> int:
        return (slot + 1) * self.slot_bytes - _PAGE

    def to_json(self) -> dict[str, int]:
        return asdict(self)


class Memory(Protocol):
    """Raw copies on one kind of device."""

    def copy(self, target: int, source: int, size: int) -> None: ...
    def synchronize(self) -> None: ...


class HostMemory:
    """Plain memory of this process."""

    def copy(self, target: int, source: int, size: int) -> None:
        _memmove(target, source, size)

    def synchronize(self) -> None:
        """Copies are done when `copy` returns."""


class CudaMemory:
    """Device memory, copied on stream 0."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def copy(self, target: int, source: int, size: int) -> None:
        self.driver.copy(target, source, size)

    def synchronize(self) -> None:
        self.driver.synchronize()


class Arena:
    """One arm's shared slots, seen from one of the two processes."""

    def __init__(self, shape: ArenaShape, base: int, mapping: mmap.mmap | None) -> None:
        self.shape = shape
        self.base = base
        self.mapping = mapping

    @classmethod
    def create_host(cls, shape: ArenaShape, fd: int) -> Arena:
        """A new arena in a `host_file`, guards and all."""
        arena = cls.open_host(shape, fd)
        for slot in range(shape.slots):
            _memmove(arena.base + shape.guard_at(slot), _GUARD, _PAGE)
        return arena

    @classmethod
    def open_host(cls, shape: ArenaShape, fd: int) -> Arena:
        # MAP_POPULATE: unfaulted pages raised a 4 MB relu from 611 to 1,019 µs.
        mapping = mmap.mmap(fd, shape.total, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        return cls(shape, base, mapping)

    @classmethod
    def create_cuda(cls, shape: ArenaShape, driver: Driver) -> tuple[Arena, str]:
        """A new arena in device memory and the IPC handle to pass on."""
        base = driver.allocate(shape.total)
        return cls(shape, base, None), driver.export(base)

    @classmethod
    def open_cuda(cls, shape: ArenaShape, driver: Driver, handle: str) -> Arena:
        return cls(shape, driver.import_(handle), None)

    @property
    def range(self) -> tuple[int, int]:
        """Where the arena begins and ends."""
        return self.base, self.base + self.shape.total

    def inputs_at(self, slot: int) -> int:
        return self.base + self.shape.inputs_at(slot)

    def outputs_at(self, slot: int) -> int:
        return self.base + self.shape.outputs_at(slot)

    def guards_intact(self) -> bool:
        """Whether nobody wrote past a slot (host arenas)."""
        if self.mapping is None:
            return True
        at = [self.shape.guard_at(slot) for slot in range(self.shape.slots)]
        return all(self.mapping[start : start + _PAGE] == _GUARD for start in at)

    def close(self) -> None:
        self.mapping = None


def host_file(shape: ArenaShape) -> int:
    """The descriptor of new memory for an arena, for both processes."""
    fd = os.memfd_create("trackside-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, shape.total)
    # Else one side could cut it off under the other's feet.
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def arena_from_message(message: dict[str, Any], fds: list[int], driver: Driver | None) -> Arena:
    """The worker's view of an arena announced by the judge."""
    shape = ArenaShape(**message["shape"])
    if driver is not None:
        return Arena.open_cuda(shape, driver, message["handle"])
    fd = fds.pop(0)
    arena = Arena.open_host(shape, fd)
    os.close(fd)
    return arena
