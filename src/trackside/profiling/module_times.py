"""Time to modules: what each, with those it calls, started on a device and took on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trackside.profiling.clock import ClockFit
from trackside.profiling.module_log import LEFT
from trackside.trace.links import Origins, launch_of
from trackside.trace.model import Ints, Trace

__all__ = ["ModuleCalls", "module_calls"]

_NO_STACK = -1


@dataclass
class ModuleCalls:
    """A module of the program, in nanoseconds of the whole window, with the modules that it calls."""

    path: str
    type: str
    calls: int = 0
    device_ns: float = 0.0
    backward_ns: float = 0.0
    """On the device, or, where there is none, on the host."""
    cpu_ns: float = 0.0


def module_calls(document: Mapping[str, Any], trace: Trace, clock: ClockFit) -> list[ModuleCalls]:
    """Join a module log with the trace of the same window; modules in the order of their first calls.

    A path that several objects have is one module.
    """
    known = document["known"]
    paths = {one["path"]: ModuleCalls(one["path"], one["type"]) for one in reversed(known)}
    modules = [paths[one["path"]] for one in known]
    stacks = _Stacks()
    threads = _threads(document, stacks, modules)
    _give_device_time(trace, clock, threads, stacks, modules)
    found: dict[str, ModuleCalls] = {one.path: one for one in modules}
    return list(found.values())


@dataclass
class _Stacks:
    """Modules that have called each other, numbered; each knows the one that it stands on."""

    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    below: list[int] = field(default_factory=list)
    tops: list[int] = field(default_factory=list)

    def push(self, below: int, module: int) -> int:
        number = self.numbers.setdefault((below, module), len(self.tops))
        if number == len(self.tops):
            self.below.append(below)
            self.tops.append(module)
        return number

    def modules(self, stack: int) -> list[int]:
        found = []
        while stack != _NO_STACK:
            found.append(self.tops[stack])
            stack = self.below[stack]
        return found


@dataclass
class _Thread:
    times: list[int] = field(default_factory=list)
    stacks: list[int] = field(default_factory=list)
    """From each time on."""

    def at(self, times: Ints) -> Ints:
        place = np.searchsorted(np.asarray(self.times, np.int64), times, side="right") - 1
        known = np.asarray(self.stacks, np.int64)
        found: Ints = np.where(place >= 0, known[np.maximum(place, 0)], _NO_STACK)
        return found


def _threads(document: Mapping[str, Any], stacks: _Stacks, modules: list[ModuleCalls]) -> dict[int, _Thread]:
    """What stood on each thread's stack when; counts calls and the host's time on the way."""
    threads: dict[int, _Thread] = {}
    open_: dict[int, list[tuple[int, int]]] = {}
    for time, thread, module in zip(document["times"], document["threads"], document["modules"], strict=True):
        one, stack = threads.setdefault(thread, _Thread()), open_.setdefault(thread, [])
        if module != LEFT:
            stack.append((stacks.push(stack[-1][0] if stack else _NO_STACK, module), time))
            modules[module].calls += 1
        elif stack:
            number, began = stack.pop()
            module = stacks.tops[number]
            outer = [modules[inner].path for inner in stacks.modules(stacks.below[number])]
            # One that is called inside itself has its time from the outer call.
            if modules[module].path not in outer:
                modules[module].cpu_ns += time - began
        one.times.append(time)
        one.stacks.append(stack[-1][0] if stack else _NO_STACK)
    return threads


def _give_device_time(
    trace: Trace, clock: ClockFit, threads: dict[int, _Thread], stacks: _Stacks, modules: list[ModuleCalls]
) -> None:
    origins = Origins(trace)
    device = trace.on_device
    if len(device):
        origin, backward = origins.of(launch_of(trace, device))
        taken = trace.duration[device]
    else:
        rows, origin = origins.derivatives()
        backward, taken = np.ones(len(rows), np.bool_), trace.duration[rows]
    found = _stacks_at(trace, clock, threads, origin)
    for stack in np.unique(found[found != _NO_STACK]).tolist():
        here = found == stack
        forward_ns, backward_ns = float(taken[here & ~backward].sum()), float(taken[here & backward].sum())
        for path in {modules[module].path: module for module in stacks.modules(stack)}.values():
            modules[path].device_ns += forward_ns
            modules[path].backward_ns += backward_ns


def _stacks_at(trace: Trace, clock: ClockFit, threads: dict[int, _Thread], rows: Ints) -> Ints:
    found = np.full(len(rows), _NO_STACK)
    lanes = np.where(rows >= 0, trace.lane[np.maximum(rows, 0)], -1)
    for lane in np.unique(lanes[lanes >= 0]).tolist():
        name = trace.lanes[lane].thread
        thread = threads.get(int(name)) if name.isdigit() else None
        if thread is not None:
            here = lanes == lane
            found[here] = thread.at(clock.to_log(trace.start[rows[here]]))
    return found
