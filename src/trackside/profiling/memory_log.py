"""Which memory was taken and given back in window B. Runs in the program's process: standard library only.

On a GPU torch's caching allocator keeps its own history, each allocation with its Python frames; here it is
switched on, read once and made small. On a CPU the profiler's trace has allocations among its events. Neither
can tell which of them are parameters, gradients and an optimizer's state, and so those are looked up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

__all__ = [
    "ALLOCATED",
    "FREED",
    "MOST_ENTRIES",
    "DeviceHistory",
    "held_tensors",
    "peak_resident",
    "read_snapshot",
]

MOST_ENTRIES = 200_000
"""Of each device. An allocation and its release are three entries; one with frames takes about a kilobyte."""

ALLOCATED, FREED, RESERVED, UNRESERVED, FAILED = 1, -1, 2, -2, 0
"""What an entry says: memory was taken or given back by the program, or by the allocator itself."""
_ACTIONS = {
    "alloc": ALLOCATED,
    # A block that another stream still uses is given back later; for the program it is free from now on.
    "free_requested": FREED,
    "segment_alloc": RESERVED,
    "segment_map": RESERVED,
    "segment_free": UNRESERVED,
    "segment_unmap": UNRESERVED,
    "oom": FAILED,
}
_IN_USE = "active_allocated"
# What the columns of the analysis hold.
_MOST = 1 << 63
_STATUS = "/proc/self/status"
_OWN_HISTORY = "the program records its allocator's history itself, and ours would end that"


class DeviceHistory:
    """The caching allocator's history, from `start` to `stop`.

    Args:
        is_users: whether a file is the program's own.
        note: told what could not be had.
    """

    def __init__(self, is_users: Callable[[str], bool], note: Callable[[str], None]) -> None:
        self._is_users, self._note = is_users, note
        self._runs = False

    def start(self) -> None:
        """From now on, if the program uses a GPU and keeps no history of its own."""
        torch: Any = sys.modules["torch"]
        if not torch.cuda.is_initialized():
            return
        try:
            if torch._C._cuda_isHistoryEnabled():
                self._note(_OWN_HISTORY)
                return
            torch.cuda.memory._record_memory_history(
                "all", context="alloc", stacks="python", max_entries=MOST_ENTRIES
            )
        except Exception as error:
            # Another allocator than torch's own has no history.
            self._note(f"the allocator keeps no history: {error}")
            return
        self._runs = True

    def stop(self) -> dict[str, Any]:
        """What was recorded, by device; the allocator forgets it."""
        if not self._runs:
            return {}
        self._runs = False
        torch: Any = sys.modules["torch"]
        try:
            found = read_snapshot(torch.cuda.memory._snapshot(), self._is_users)
        finally:
            torch.cuda.memory._record_memory_history(None)
        for device, one in found.items():
            number = int(device.partition(":")[2])
            one["total_bytes"] = int(torch.cuda.get_device_properties(number).total_memory)
        return found


def read_snapshot(snapshot: Mapping[str, Any], is_users: Callable[[str], bool]) -> dict[str, Any]:
    """A snapshot as torch gives it, by device, with one line of the program's own for each allocation.

    Columns of `action`, `time_us`, `address`, `bytes` and `line`, a number in `places` or -1, and what is in
    use and reserved at the end. Entries that are not as expected are counted.
    """
    lines = _Lines(is_users)
    found: dict[str, Any] = {}
    for number, entries in enumerate(snapshot.get("device_traces") or ()):
        columns, unreadable = _columns(entries, lines)
        if columns["action"]:
            found[f"cuda:{number}"] = columns | {
                "places": lines.places,
                "unreadable": unreadable,
                "full": len(entries) >= MOST_ENTRIES,
                "in_use": [],
                "reserved_bytes": 0,
            }
    for segment in snapshot.get("segments") or ():
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            if (device := found.get(f"cuda:{segment['device']}")) is not None:
                device["reserved_bytes"] += int(segment["total_size"])
                device["in_use"] += _in_use(segment)
    return found


def _in_use(segment: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Address and bytes of its blocks that the program holds; they lie one after another.

    Bytes are those that were asked for, as in the history; a block may have some more.
    """
    found = []
    at = int(segment["address"])
    for block in segment["blocks"]:
        size = int(block["size"])
        if block["state"] == _IN_USE:
            found.append((at, int(block.get("requested_size") or size)))
        at += size
    return found


def _columns(entries: Iterable[Any], lines: _Lines) -> tuple[dict[str, list[int]], int]:
    columns: dict[str, list[int]] = {name: [] for name in ("action", "time_us", "address", "bytes", "line")}
    unreadable = 0
    for entry in entries:
        try:
            action = _ACTIONS.get(entry["action"])
            if action is None:
                continue
            numbers = (
                int(entry["time_us"]),
                int(entry["addr"]) if action != FAILED else 0,
                int(entry["size"]),
            )
            if not all(0 <= number < _MOST for number in numbers):
                raise ValueError
            place = lines.of(entry.get("frames") or ()) if action in (ALLOCATED, RESERVED) else -1
        except (AttributeError, KeyError, TypeError, ValueError):
            unreadable += 1
            continue
        for column, value in zip(columns.values(), (action, *numbers, place), strict=True):
            column.append(value)
    return columns, unreadable


class _Lines:
    """The innermost line of the program's own in a list of frames, which torch gives innermost first."""

    def __init__(self, is_users: Callable[[str], bool]) -> None:
        self.places: list[tuple[str, int]] = []
        self._is_users = is_users
        self._files: dict[str, bool] = {}
        self._numbers: dict[tuple[str, int], int] = {}

    def of(self, frames: Iterable[Mapping[str, Any]]) -> int:
        """A number in `places`; -1 where there is none."""
        for frame in frames:
            file = frame["filename"]
            if file not in self._files:
                self._files[file] = bool(file) and self._is_users(file)
            if self._files[file]:
                place = file, int(frame["line"])
                number = self._numbers.setdefault(place, len(self.places))
                if number == len(self.places):
                    self.places.append(place)
                return number
        return -1


def held_tensors(optimizers: Iterable[Any], modules: Iterable[Any]) -> dict[str, list[tuple[int, int, str]]]:
    """By device, the address, bytes and kind of what optimizers and modules hold; each storage once."""
    torch: Any = sys.modules["torch"]
    found: dict[str, dict[int, tuple[int, str]]] = {}
    # Not what a subclass or a mode makes of these calls: it is the program's code.
    with torch._C.DisableTorchFunction():
        for what, tensor in _kinds(list(optimizers), list(modules), torch):
            # Of one without storage of its own (a fake one, a wrapper) nothing is held here.
            with suppress(Exception):
                storage = torch.Tensor.untyped_storage(tensor)
                address, size = storage.data_ptr(), storage.nbytes()
                if address and size:
                    found.setdefault(str(tensor.device), {}).setdefault(address, (size, what))
    return {
        device: [(address, size, what) for address, (size, what) in held.items()]
        for device, held in found.items()
    }


def _kinds(optimizers: list[Any], modules: list[Any], torch: Any) -> Iterator[tuple[str, Any]]:
    parameters = [
        parameter
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    parameters += [parameter for module in modules for parameter in module.parameters()]
    for parameter in parameters:
        yield "parameters", parameter
    for module in modules:
        for buffer in module.buffers():
            yield "buffers", buffer
    for optimizer in optimizers:
        for state in list(optimizer.state.values()):
            for value in list(state.values()) if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor):
                    yield "optimizer state", value
    for parameter in parameters:
        # Only of leaves: others warn when they are asked.
        if parameter.is_leaf and parameter.grad is not None:
            yield "gradients", parameter.grad


def peak_resident() -> int | None:
    """The most memory that this process had so far, whatever for; None where the system does not tell."""
    try:
        with open(_STATUS, encoding="ascii", errors="replace") as file:
            rows = dict(line.split(":", 1) for line in file if ":" in line)
        return int(rows["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
