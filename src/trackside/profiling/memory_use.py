"""Memory over the steps of window B: how much was held when, and at its most, by which line.

A GPU's allocations come from its allocator's history, with the line of each. A CPU's come from the trace, and
are joined with the line log as operators are. What a derivative takes belongs to the line of its operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from trackside.profiling.attribution import Attribution, bucket_at
from trackside.profiling.line_stacks import Line
from trackside.profiling.memory_log import ALLOCATED, FAILED, FREED, RESERVED
from trackside.trace.model import Ints, Kind, Trace
from trackside.trace.timeline import main_thread, outermost

__all__ = ["BEFORE", "MemoryUse", "Owner", "device_memory", "host_memory"]

BEFORE = "before the steps with lines"
_OUTSIDE = "outside of Python"
_BUCKETS = {"autograd": "autograd", "unattributed": "no line known"}
# What a page can draw.
_MOST_POINTS = 2000
# Times of the history are whole microseconds; two clocks that fit agree to a little more.
_SLACK_NS = 2_000
# Of allocations without a frame of Python: so many must have happened in operators of other threads, or the
# clocks of trace and allocator are not the same.
_JOINED_SHARE = 0.8
# The history begins with the window, so that its first allocation is not far from there.
_APART_NS = 10_000_000_000
# Growth is what all steps have, the least of them at least half of the median; fewer steps show nothing.
# Nobody runs out by less than so many bytes a step: a list of losses is such a case.
_FEWEST_STEPS, _EVEN, _LEAST_GROWTH = 3, 0.5, 65_536


class Owner(NamedTuple):
    """What memory is held for."""

    line: Line | None
    what: str
    """Without a line: what it is."""
    backward: bool = False
    """The line's derivatives hold it."""


class Counts(NamedTuple):
    """What the allocator had to ask of the device in these steps."""

    segments: int = 0
    bytes: int = 0
    failures: int = 0


@dataclass(frozen=True)
class MemoryUse:
    """One device's memory in the steps with lines."""

    device: str
    peak_bytes: int
    owners: dict[Owner, int]
    """Bytes held at the peak; they add up to it."""
    series: list[tuple[float, int]]
    """Milliseconds since the first step began, bytes held from then on; the highest and lowest of many."""
    step_ends_ms: list[float] = field(default_factory=list)
    peak_ms: float = 0.0
    reserved_bytes: int | None = None
    """By the allocator at the peak."""
    total_bytes: int | None = None
    """What the device has; None where nobody asked it."""
    growth_bytes: int | None = None
    """By which each step leaves more than the one before; None where not every one does."""
    left: dict[Owner, int] = field(default_factory=dict)
    """Where it grows: bytes a step that outlive their step, by who has taken them."""
    reservations: Counts = Counts()  # noqa: RUF009
    incomplete: list[str] = field(default_factory=list)


class _Flow(NamedTuple):
    """Allocations and releases in order of time; `owner` is of no meaning for a release."""

    time_ns: Sequence[int]
    address: Sequence[int]
    size: Sequence[int]
    """Below 0: given back."""
    owner: Sequence[Owner]


def host_memory(
    trace: Trace,
    attribution: Attribution,
    held: Iterable[Sequence[Any]],
    begin_ns: int,
    ends_ns: Sequence[int],
) -> MemoryUse | None:
    """The CPU's memory for tensors, from the events of a trace; None where it has none.

    Args:
        trace: of the whole session, so that what was taken in earlier steps is known.
        attribution: of the steps with lines.
        held: address, bytes and kind of what optimizers and modules held at the end.
        begin_ns: when these steps began, on the trace's clock.
        ends_ns: when steps ended, earlier ones included.
    """
    rows = _host_rows(trace)
    if not len(rows):
        return None
    rows = rows[trace.start[rows] < begin_ns]
    inside = _host_rows(attribution.trace)
    places, backward = attribution.places(inside)
    known = [
        _owner(place, back, attribution.known)
        for place, back in zip(places.tolist(), backward.tolist(), strict=True)
    ]
    parts = [(trace, rows), (attribution.trace, inside)]
    time, address, size = (
        np.concatenate([getattr(one, name)[some] for one, some in parts])
        for name in ("start", "correlation", "size")
    )
    owners = [Owner(None, BEFORE)] * len(rows) + known
    flow = _Flow(time.tolist(), address.tolist(), size.tolist(), owners)
    taken = set(address[size > 0].tolist())
    kept = _kept(held, address[(size < 0) & (time >= begin_ns)].tolist())
    before = {
        address: (size, Owner(None, what)) for address, (size, what) in kept.items() if address not in taken
    }
    return _use("cpu", flow, before, kept, begin_ns, ends_ns)


def device_memory(
    device: str,
    history: Mapping[str, Any],
    attribution: Attribution | None,
    held: Iterable[Sequence[Any]],
    base_ns: int,
    begin_ns: int,
    ends_ns: Sequence[int],
) -> MemoryUse | None:
    """A GPU's memory, from what `read_snapshot` made of its allocator's history; None where that is empty.

    Args:
        base_ns: where the times of `begin_ns` and `ends_ns` begin, since 1970.
    """
    action = np.asarray(history["action"], np.int64)
    # In the allocator's order; of threads side by side one may have looked at the clock before the other.
    time = np.maximum.accumulate(np.asarray(history["time_us"], np.int64)) * 1000 - base_ns
    address, size = (np.asarray(history[name], np.int64) for name in ("address", "bytes"))
    if not len(action):
        return None
    if abs(int(time[0]) - begin_ns) > _APART_NS:
        # Another clock, or the beginning is not known: what happened is, but not beside which step.
        time, ends_ns, attribution = time - time[0] + begin_ns, [], None
    lines = [Owner(Line(file, line), "") for file, line in history["places"]]
    owners = [lines[at] if at >= 0 else Owner(None, _OUTSIDE) for at in history["line"]]
    if attribution is not None:
        _join_derivatives(owners, time, action == ALLOCATED, attribution)
    taking, giving = action == ALLOCATED, action == FREED
    some = np.flatnonzero(taking | giving)
    flow = _Flow(
        time[some].tolist(),
        address[some].tolist(),
        np.where(giving, -size, size)[some].tolist(),
        [owners[at] for at in some.tolist()],
    )
    kept = _kept(held, address[giving].tolist())
    before = {
        at: (bytes_, Owner(None, kept[at][1] if at in kept else BEFORE))
        for at, bytes_ in _held_before(flow, history["in_use"])
    }
    found = _use(device, flow, before, kept, begin_ns, ends_ns)
    if found is None:
        return None
    reserving = np.where(action == RESERVED, size, np.where(action < FREED, -size, 0))
    at_peak = reserving[time <= begin_ns + int(1e6 * found.peak_ms)].sum()
    new = action == RESERVED
    incomplete = []
    if history.get("full"):
        incomplete.append("the allocator's history was full: only the end of these steps is known")
    if history.get("unreadable"):
        incomplete.append(f"{history['unreadable']:,} entries of the allocator's history could not be read")
    return replace(
        found,
        reserved_bytes=int(history["reserved_bytes"] - reserving.sum() + at_peak),
        total_bytes=history.get("total_bytes"),
        reservations=Counts(int(new.sum()), int(size[new].sum()), int((action == FAILED).sum())),
        incomplete=incomplete,
    )


def _host_rows(trace: Trace) -> Ints:
    rows = trace.of(Kind.MEMORY)
    # A device's have its number.
    found: Ints = rows[trace.detail[rows] < 0]
    return found


def _owner(place: int, backward: bool, known: Sequence[Line]) -> Owner:
    if place >= 0:
        return Owner(known[place], "", backward)
    bucket = bucket_at(place)
    return Owner(None, _BUCKETS.get(bucket, bucket))


def _kept(held: Iterable[Sequence[Any]], freed: Iterable[int]) -> dict[int, tuple[int, str]]:
    """By address, what was held all the time: what was given back meanwhile may have been something else."""
    gone = set(freed)
    return {int(at): (int(size), str(what)) for at, size, what in held if int(at) not in gone}


def _held_before(flow: _Flow, in_use: Iterable[Sequence[int]]) -> Iterable[tuple[int, int]]:
    """Blocks that are given back without having been taken, and those at the end that nobody took."""
    seen: set[int] = set()
    for address, size in zip(flow.address, flow.size, strict=True):
        if address not in seen and size < 0:
            yield address, -size
        seen.add(address)
    for address, size in in_use:
        if address not in seen:
            yield address, size


def _join_derivatives(owners: list[Owner], time: Ints, taking: Any, attribution: Attribution) -> None:
    """A derivative runs on a thread of autograd's, without Python: the operator of that moment tells."""
    trace = attribution.trace
    asked = np.array([at for at in np.flatnonzero(taking).tolist() if owners[at].line is None], np.int64)
    rows = outermost(trace, trace.of(Kind.OP))
    rows = rows[trace.lane[rows] != main_thread(trace)]
    if not len(asked) or not len(rows):
        return
    times = time[asked] + 500
    at = np.maximum(np.searchsorted(trace.start[rows] - _SLACK_NS, times, side="right") - 1, 0)
    inside = (times >= trace.start[rows[at]] - _SLACK_NS) & (times <= trace.end[rows[at]] + _SLACK_NS)
    if inside.mean() < _JOINED_SHARE:
        return
    places, backward = attribution.places(rows[at[inside]])
    for which, place, back in zip(asked[inside].tolist(), places.tolist(), backward.tolist(), strict=True):
        owners[which] = _owner(place, back, attribution.known)


def _use(
    device: str,
    flow: _Flow,
    before: Mapping[int, tuple[int, Owner]],
    kept: Mapping[int, tuple[int, str]],
    begin_ns: int,
    ends_ns: Sequence[int],
) -> MemoryUse | None:
    """How high the flow goes from a time on, and what is held there."""
    levels = _levels(flow, {address: size for address, (size, _) in before.items()})
    times = np.asarray(flow.time_ns, np.int64)
    first = int(np.searchsorted(times, begin_ns))
    inside, moments = levels[first:], np.append(begin_ns, times[first:])
    highest = int(inside.argmax())
    if inside[highest] <= 0:
        return None
    ms = (moments - begin_ns) / 1e6
    inner_ends = [end for end in ends_ns if end > begin_ns]
    growth = _growth(levels[np.searchsorted(times, np.asarray(ends_ns, np.int64), side="right")])
    return MemoryUse(
        device=device,
        peak_bytes=int(inside[highest]),
        owners=_owners(flow, first + highest, before, kept),
        series=_thinned(ms, inside),
        step_ends_ms=[(end - begin_ns) / 1e6 for end in inner_ends],
        peak_ms=float(ms[highest]),
        growth_bytes=growth,
        left=_left(flow, first, inner_ends) if growth is not None else {},
    )


def _levels(flow: _Flow, live: dict[int, int]) -> Ints:
    """Bytes held before the first event and after each.

    Memory that a thread gives back which is not recorded is not seen to be: its address is then taken twice.
    """
    level = sum(live.values())
    levels = [level]
    for address, size in zip(flow.address, flow.size, strict=True):
        if size > 0:
            level += size - live.get(address, 0)
            live[address] = size
        else:
            level -= live.pop(address, 0)
        levels.append(level)
    return np.array(levels, np.int64)


def _owners(
    flow: _Flow, count: int, before: Mapping[int, tuple[int, Owner]], kept: Mapping[int, tuple[int, str]]
) -> dict[Owner, int]:
    """What is held after so many events, the most first."""
    live = dict(before)
    for row in range(count):
        address, size, owner = flow.address[row], flow.size[row], flow.owner[row]
        if size <= 0:
            live.pop(address, None)
        elif owner.what == BEFORE and address in kept:
            live[address] = size, Owner(None, kept[address][1])
        else:
            live[address] = size, owner
    return _summed(live.values())


def _summed(blocks: Iterable[tuple[int, Owner]]) -> dict[Owner, int]:
    """The most first."""
    sums: dict[Owner, int] = {}
    for size, owner in blocks:
        sums[owner] = sums.get(owner, 0) + size
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _thinned(ms: Any, levels: Ints) -> list[tuple[float, int]]:
    """The highest and the lowest of each stretch, in order of time, and the last."""
    parts = np.array_split(np.arange(len(levels)), max(1, min(len(levels), _MOST_POINTS // 2)))
    rows = {int(part[pick]) for part in parts for pick in (levels[part].argmax(), levels[part].argmin())}
    return [(float(ms[row]), int(levels[row])) for row in sorted(rows | {len(levels) - 1})]


def _growth(at_ends: Ints) -> int | None:
    steps = np.diff(at_ends)
    if len(steps) < _FEWEST_STEPS or steps.min() <= 0:
        return None
    middle = float(np.median(steps))
    return int(middle) if middle >= _LEAST_GROWTH and steps.min() >= _EVEN * middle else None


def _left(flow: _Flow, first: int, ends_ns: Sequence[int]) -> dict[Owner, int]:
    """Bytes a step, taken in all steps but the last and still held at its end."""
    if len(ends_ns) < 2:
        return {}
    live: dict[int, tuple[int, Owner]] = {}
    for row in range(first, len(flow.time_ns)):
        if flow.time_ns[row] > ends_ns[-1]:
            break
        live.pop(flow.address[row], None)
        if flow.size[row] > 0 and flow.time_ns[row] <= ends_ns[-2]:
            live[flow.address[row]] = flow.size[row], flow.owner[row]
    return {owner: size // (len(ends_ns) - 1) for owner, size in _summed(live.values()).items()}
