"""One call: inputs put in place from a slot of the arena, and the call itself, timed on host or device."""

from __future__ import annotations

import gc
import sys
import time
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch

from trackside.workload import cuda, integrity, memory, tree
from trackside.workload.memory import Arena

__all__ = ["CallBench", "CudaBench", "HostBench", "Times"]

# Captured before user code exists in this process.
_clock = time.perf_counter_ns
_cpu_clock = time.thread_time_ns
_detach = torch.Tensor.detach
_as_strided = torch.as_strided
_frombuffer = torch.frombuffer
_empty_strided = torch.empty_strided
_hooks = integrity.hooks_installed
# A profile hook is told of calls of C functions, but not of one that a partial makes.
_quiet_clock, _quiet_cpu_clock = partial(_clock), partial(_cpu_clock)
_quiet_gettrace, _quiet_getprofile = partial(sys.gettrace), partial(sys.getprofile)
# Only while a call runs: its own collections are its cost, and no finalizer of its may run in our code.
_collect_garbage, _leave_garbage = partial(gc.enable), partial(gc.disable)
# Something new that the collector counts: where it is due, also since a call had it wait, it comes now.
_make_something: partial[Any] = partial(set)

# Twice the largest L2 in use today (Hopper 50-60 MB, Blackwell 126 MB), as NVBench and do_bench do.
_FLUSH_BYTES = 256 << 20


class Times(NamedTuple):
    """Of each call of a slot, in ns; the last two are empty where nobody asked."""

    own: list[float]
    """Events' on a GPU."""
    host: list[int]
    """CPU time on a CPU; on a GPU the host's, with a sync in wall mode, of enqueueing alone in cold mode."""
    late: list[int]
    """How long the device went on after the end events of paced calls."""
    waited: list[int]
    """1 where the device had passed the start event, which follows a flush, when the call returned."""


class CallBench(Protocol):
    """How inputs are put in place and a call is timed on one kind of device."""

    memory: memory.Memory
    hooks: set[str]
    """Interpreter hooks, and replaced names of ours, seen when a call returned."""
    given: list[torch.Tensor]
    """The tensors that were put in place last, whatever became of the containers they were given in."""

    def place(self, slot: int, mode: str, flushes: int, decoys: list[int]) -> Any: ...
    def timed(self, index: int, mode: str, paced: bool, call: Any, state: Any, args: Any) -> Any: ...
    def bent(self, slot: int) -> list[int]: ...
    def input_ranges(self) -> list[tuple[int, int]]: ...
    def copy_out(self, target: int, source: int, size: int, device: str) -> None: ...
    def times(self, count: int) -> Times: ...


class HostBench:
    """Inputs are tensors over the arena itself; the clock is the process's own."""

    # Its attributes stay the same objects: the watch sees when one was replaced.

    def __init__(self, arena: Arena, spec: dict[str, Any], watch: integrity.Watch) -> None:
        self.memory: memory.Memory = memory.HostMemory()
        self._watch = watch
        self._arena, self._spec = arena, spec
        self.hooks: set[str] = set()
        self.given: list[torch.Tensor] = []
        self._tensors: dict[int, list[torch.Tensor]] = {}
        self._wall: list[int] = []
        self._cpu: list[int] = []

    def place(self, slot: int, mode: str, flushes: int, decoys: list[int]) -> Any:
        # The same tensor objects at the same addresses with other values: what a caller's buffers look like,
        # and what catches answers remembered by identity.
        if slot not in self._tensors:
            self._tensors[slot] = [self._tensor(slot, facts) for facts in self._spec["leaves"]]
        base = self._arena.inputs_at(slot)
        for i, facts in enumerate(self._spec["leaves"]):
            given = self._tensors[slot][i]
            # One that a call bent, or asked a gradient of, is a new one.
            if facts["grad"] or tree.needs_gradient(given) or _is_bent(given, facts, base + facts["offset"]):
                self._tensors[slot][i] = self._tensor(slot, facts)
        self.given[:] = self._tensors[slot]
        return tree.build(self._spec["tree"], self.given.__getitem__)

    def _tensor(self, slot: int, facts: dict[str, Any]) -> torch.Tensor:
        dtype = tree.DTYPES[facts["dtype"]]
        if facts["span"] == 0:
            return torch.empty_strided(facts["shape"], facts["stride"], dtype=dtype)
        start = self._arena.shape.inputs_at(slot) + facts["offset"]
        flat = _frombuffer(self._arena.mapping, dtype=torch.uint8, count=facts["span"], offset=start)
        tensor = _as_strided(flat.view(dtype), facts["shape"], facts["stride"])
        return tensor.requires_grad_() if facts["grad"] else tensor

    def timed(self, index: int, mode: str, paced: bool, call: Any, state: Any, args: Any) -> Any:
        # Looked up before the call: what it puts in their place is not run, and seen.
        clock, cpu_clock, look = _quiet_clock, _quiet_cpu_clock, self._watch.look
        look_at_held = self._watch.look_at_held
        gettrace, getprofile, leave_garbage = _quiet_gettrace, _quiet_getprofile, _leave_garbage
        collect_garbage, make_something = _collect_garbage, _make_something
        collect_garbage()
        try:
            c0 = cpu_clock()
            t0 = clock()
            output = call(state, args)
            # Hooks may work and be gone before anybody asks. One that traces is told of every line, so it is
            # asked for before the clock; one that profiles is told of nothing until the look. Python collects
            # garbage that the call made no later than here, though the call told it to wait.
            collect_garbage()
            make_something()
            tracing = gettrace()
            t1 = clock()
            c1 = cpu_clock()
        finally:
            leave_garbage()
        profiling = getprofile()
        look()
        look_at_held()
        if tracing is not None:
            self.hooks.add("sys.settrace")
        if profiling is not None:
            self.hooks.add("sys.setprofile")
        self.hooks.update(_hooks())
        self._wall.append(t1 - t0)
        self._cpu.append(c1 - c0)
        return output

    def input_ranges(self) -> list[tuple[int, int]]:
        return [self._arena.range]

    def bent(self, slot: int) -> list[int]:
        """Inputs whose tensors no longer have the shape, strides and place that they were given with."""
        base = self._arena.inputs_at(slot)
        return [
            i
            for i, (tensor, facts) in enumerate(zip(self._tensors[slot], self._spec["leaves"], strict=True))
            if _is_bent(tensor, facts, base + facts["offset"])
        ]

    def copy_out(self, target: int, source: int, size: int, device: str) -> None:
        self.memory.copy(target, source, size)

    def times(self, count: int) -> Times:
        found = Times([float(t) for t in self._wall], self._cpu[:], [], [])
        self._wall.clear()
        self._cpu.clear()
        return found


class CudaBench:
    """Inputs are copied into place on the timing stream, after a flush that hides the launches."""

    def __init__(
        self,
        arena: Arena,
        spec: dict[str, Any],
        watch: integrity.Watch,
        driver: cuda.Driver,
        device: str,
        flush: int | None,
    ) -> None:
        self.driver = driver
        self._watch = watch
        self.memory: memory.Memory = memory.CudaMemory(driver)
        self._arena, self._spec = arena, spec
        self.flush = driver.allocate(_FLUSH_BYTES) if flush is None else flush
        self._events = [(driver.event(), driver.event()) for _ in range(max(32, arena.shape.slots))]
        self._look_at_calls = watch.look_at(
            cuEventRecord=driver.record_call,
            cuEventSynchronize=driver.wait_call,
            cuEventQuery=driver.query_call,
            cuCtxSynchronize=driver.synchronize_call,
        )
        self.hooks: set[str] = set()
        self.given: list[torch.Tensor] = []
        self._host: list[int] = []
        self._late: list[int] = []
        self._waited: list[int] = []
        self._snapshots: list[bytes] = []
        """Of outputs on the host, until they have been copied to the device."""
        self._places = [self._new_place(facts, device) for facts in spec["leaves"]]

    def _new_place(self, facts: dict[str, Any], device: str | torch.device) -> tuple[Any, int, Any]:
        tensor = _empty_strided(
            facts["shape"], facts["stride"], dtype=tree.DTYPES[facts["dtype"]], device=device
        )
        return tensor, tree.address(tensor)[0], facts

    def move(self) -> None:
        """Have the inputs of further calls elsewhere: a graph reads where those lay that it was made with."""
        # All at once: the old ones are still there, so that none is given an old one's memory.
        self._places[:] = [self._new_place(facts, tensor.device) for tensor, _pointer, facts in self._places]

    def place(self, slot: int, mode: str, flushes: int, decoys: list[int]) -> Any:
        driver, base = self.driver, self._arena.inputs_at(slot)
        if mode == "cold":
            driver.reset_persisting_l2()
            for _ in range(flushes):
                driver.fill(self.flush, slot + 1, _FLUSH_BYTES)
        # Decoys come first: who starts as soon as the inputs change works on another call's values.
        for source in (*(self._arena.inputs_at(other) for other in decoys), base):
            for _tensor, pointer, facts in self._places:
                driver.copy(pointer, source + facts["offset"], facts["span"])
        for i, (tensor, pointer, facts) in enumerate(self._places):
            if tree.needs_gradient(tensor) or _is_bent(tensor, facts, pointer):
                # A call bent it, or asked a gradient of it.
                plain = _as_strided(_detach(tensor), facts["shape"], facts["stride"], 0)
                self._places[i] = (plain, pointer, facts)
        self.given[:] = [
            _detach(tensor).requires_grad_() if facts["grad"] else tensor
            for tensor, _pointer, facts in self._places
        ]
        return tree.build(self._spec["tree"], self.given.__getitem__)

    def timed(self, index: int, mode: str, paced: bool, call: Any, state: Any, args: Any) -> Any:
        # Looked up before the call: what it puts in their place is not run, and seen.
        driver, look, look_at_held = self.driver, self._watch.look, self._watch.look_at_held
        look_at_calls = self._look_at_calls
        clock, record, synchronize = _clock, driver.record_call, driver.synchronize_call
        wait, query = driver.wait_call, driver.query_call
        start, end = self._events[index]
        if mode != "cold":
            driver.synchronize()
        _collect_garbage()
        try:
            t0 = clock()
            driver.record(start)
            output = call(state, args)
        finally:
            _leave_garbage()
        # Before the end event: a hook left behind could enqueue the work once that is recorded. The whole
        # look takes longer than many a kernel, so it comes last: what runs before it is timed.
        self.hooks.update(_hooks())
        look_at_calls()
        code = record(end, None)
        if mode != "cold":
            code = code or synchronize()
        t1 = clock()
        if mode == "cold":
            self._waited.append(int(not query(start)))
        if paced:
            # What the call left behind on another stream would be done before the look is.
            code = code or wait(end)
            ended = clock()
            code = code or synchronize()
            self._late.append(clock() - ended)
        look()
        look_at_held()
        if code:
            raise cuda.CudaError("cuEventRecord, cuEventSynchronize or cuCtxSynchronize", code)
        self._host.append(t1 - t0)
        return output

    def input_ranges(self) -> list[tuple[int, int]]:
        return [tree.storage_range(tensor) for tensor, _pointer, _facts in self._places]

    def bent(self, slot: int) -> list[int]:
        # One that needs a gradient is given as a tensor of its own over the same memory.
        return [
            i
            for i, ((tensor, pointer, facts), given) in enumerate(zip(self._places, self.given, strict=True))
            if _is_bent(tensor, facts, pointer) or _is_bent(given, facts, pointer)
        ]

    def copy_out(self, target: int, source: int, size: int, device: str) -> None:
        if device == "cpu":
            # As it is now, when the caller has it: on the stream, a copy still under way would be done first.
            self._snapshots.append(memory.snapshot(source, size))
            self.driver.upload(target, self._snapshots[-1], size)
        else:
            self.driver.copy(target, source, size)

    def times(self, count: int) -> Times:
        self.driver.synchronize()
        own = [self.driver.elapsed_ns(*self._events[i]) for i in range(count)]
        found = Times(own, self._host[:], self._late[:], self._waited[:])
        for times in (self._host, self._late, self._waited, self._snapshots):
            times.clear()
        return found

    def inputs_back(self, slot: int) -> None:
        """Copy the input buffers of the last call to the arena, to see whether they changed."""
        for _tensor, pointer, facts in self._places:
            self.driver.copy(self._arena.inputs_at(slot) + facts["offset"], pointer, facts["span"])


def _is_bent(tensor: torch.Tensor, facts: dict[str, Any], pointer: int) -> bool:
    now = tree.facts_of("", tensor)
    same = all(now.get(key) == list(facts[key]) for key in ("shape", "stride"))
    return not same or (bool(facts["span"]) and tree.address(tensor)[0] != pointer)
