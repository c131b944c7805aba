"""Snapshots as `torch.cuda.memory._snapshot()` gives them, of an allocator that is told what happens."""

from __future__ import annotations

from typing import Any

__all__ = ["Allocator", "frames"]

_SEGMENT = 20 << 20
_BASE = 0x7F00_0000_0000


def frames(*places: tuple[str, int]) -> list[dict[str, Any]]:
    """Innermost first, as torch has them."""
    return [{"filename": file, "line": line, "name": "function"} for file, line in places]


class Allocator:
    """One device's: segments of 20 MiB, a block for each allocation, the history from `record` on.

    Blocks are multiples of 512 bytes; the history has what was asked for.
    """

    def __init__(self, began_us: int = 1_790_000_000_000_000) -> None:
        self.now_us = began_us
        self._next = _BASE
        self._free: list[tuple[int, int]] = []
        self._live: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self._segments: list[tuple[int, int]] = []
        self._trace: list[dict[str, Any]] | None = None

    def record(self) -> None:
        self._trace = []

    def alloc(self, asked: int, *places: tuple[str, int]) -> int:
        """In the first gap that is large enough, else in a new segment."""
        size = -(-asked // 512) * 512
        place = next((one for one in self._free if one[1] >= size), None)
        if place is None:
            total = max(_SEGMENT, size)
            place = self._next, total
            self._next += total
            self._segments.append(place)
            self._add("segment_alloc", place[0], total, frames(*places))
        else:
            self._free.remove(place)
        if place[1] > size:
            self._free.insert(0, (place[0] + size, place[1] - size))
        self._live[place[0]], self._asked[place[0]] = size, asked
        self._add("alloc", place[0], asked, frames(*places))
        return place[0]

    def free(self, address: int) -> None:
        size = self._live.pop(address)
        self._free.insert(0, (address, size))
        self._add("free_requested", address, self._asked[address], [])
        self._add("free_completed", address, self._asked[address], [])

    def fail(self, size: int) -> None:
        """Out of memory: the entry has no address."""
        self._add("oom", None, size, [])

    def _add(self, action: str, address: int | None, size: int, stack: list[dict[str, Any]]) -> None:
        self.now_us += 10
        if self._trace is None:
            return
        where = {"device_free": 1 << 20} if address is None else {"addr": address}
        entry = {
            "action": action,
            "size": size,
            "stream": 0,
            "time_us": self.now_us,
            "frames": stack,
            **where,
        }
        self._trace.append(entry | {"compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0)})

    def snapshot(self) -> dict[str, Any]:
        segments = []
        for address, total in self._segments:
            inside = {
                at: size for at, size in [*self._live.items(), *self._free] if address <= at < address + total
            }
            blocks = [
                {
                    "address": at,
                    "size": size,
                    "requested_size": self._asked[at] if at in self._live else 0,
                    "state": "active_allocated" if at in self._live else "inactive",
                    "frames": [],
                }
                for at, size in sorted(inside.items())
            ]
            held = sum(one["size"] for one in blocks if one["state"] == "active_allocated")
            segments.append(
                {
                    "device": 0,
                    "address": address,
                    "total_size": total,
                    "allocated_size": held,
                    "active_size": held,
                    "requested_size": held,
                    "stream": 0,
                    "segment_type": "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": False,
                    "frames": [],
                    "blocks": blocks,
                }
            )
        return {
            "segments": segments,
            "device_traces": [self._trace or [], []],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
        }
