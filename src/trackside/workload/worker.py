"""An arm's process: loads one file, runs it on inputs that appear in shared memory, copies out raw bytes.

It times what it runs, but decides nothing: outputs are checked and clocks compared elsewhere.
"""

from __future__ import annotations

import gc
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from trackside.records.errors import TracksideError
from trackside.workload import aliasing, bending, calls, cuda, flags, formats, integrity, memory, state, tree
from trackside.workload.aliasing import Place, aliases, overlap, pieces, stretches
from trackside.workload.calls import CallBench, CudaBench, HostBench
from trackside.workload.channel import Channel
from trackside.workload.digest import digest
from trackside.workload.matmul import fastest_matmul
from trackside.workload.memory import ALIGN, Arena, align
from trackside.workload.sandbox import Isolation
from trackside.workload.time_limit import time_limit

__all__ = ["serve"]

# Captured before user code exists in this process.
_clock = time.perf_counter_ns
_manual_seed = torch.Generator.manual_seed
_sleep = time.sleep
_active_modes = integrity.active_modes
_hooks = integrity.hooks_installed
_frozen = gc.get_freeze_count

_POISON = 0xFF
# Bytes that make a float NaN or very large, and an integer negative.
_POISONS = 0x7F

_KINDS = {"_watch": integrity.Watch, "_kept": list, "_state_ranges": list, "_sizes": list, "_contract": dict}
"""Of the worker's attributes those that are there before the calls, which a look at them starts from."""


def serve(channel: Channel, request: dict[str, Any], isolation: Isolation) -> None:
    """Answer the judge until it says exit."""
    integrity.refuse_audit_hooks()
    _Worker(channel, request, isolation).loop()


class _Worker:
    def __init__(self, channel: Channel, request: dict[str, Any], isolation: Isolation) -> None:
        self._channel = channel
        self._device: str = request["device"]
        self._isolation = isolation
        near = [sys.modules[__name__], calls, integrity, memory, tree, state, aliasing]
        if self._device != "cpu":
            near.append(cuda)
        others = [
            module
            for name, module in sys.modules.items()
            if name.startswith("trackside.workload.") and "formats" not in name and module not in near
        ]
        self._watch = integrity.Watch(tuple(near), tuple(others))
        self._workload: Any = None
        self._state: Any = None
        self._snapshot: state.Snapshot | None = None
        self._arena: Arena | None = None
        self._bench: Any = None
        self._spec: dict[str, Any] = {}
        self._contract: dict[str, Any] = {"inputs": [], "state": [], "names": {}, "restore": False}
        self._kept: list[tuple[int, list[tuple[str, Any]]]] = []
        self._state_ranges: list[tuple[str, int, int]] = []
        self._never_collected = 0
        self._peak = 0
        self._sizes: list[int] = []
        # Seeded one by one: torch.manual_seed takes 100 us, more than many a call.
        self._generators = [torch.default_generator]
        self._state_generators: list[torch.Generator] = []

    def loop(self) -> None:
        self._channel.send({"ready": True, "isolation": self._isolation.to_json()})
        while True:
            request = self._channel.receive(None)
            if request["op"] == "exit":
                return
            operation = getattr(self, f"_op_{request['op']}")
            try:
                answer = operation(request)
            except cuda.CudaError as error:
                answer = {
                    "raised": {
                        "type": "CudaError",
                        "message": str(error),
                        "where": "",
                        "memory": error.out_of_memory,
                    }
                }
            except BaseException as error:
                answer = {"raised": _explain(error)}
            self._channel.send(answer)

    # -- loading ---------------------------------------------------------------------------------

    def _op_load(self, request: dict[str, Any]) -> dict[str, Any]:
        started = _clock()
        if self._device != "cpu":
            torch.cuda.set_device(self._device)
            torch.zeros(1, device=self._device)
            self._generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
        self._workload = formats.load(
            Path(request["path"]),
            role=request["role"],
            baseline_format=request["format"],
            baseline_path=Path(request["baseline"]),
        )
        if self._workload.no_grad:
            torch.set_grad_enabled(False)
        return {
            "seconds": (_clock() - started) / 1e9,
            "has_state": self._workload.has_state,
            "borrows_setup": self._workload.borrows_setup,
        }

    def _op_setup(self, request: dict[str, Any]) -> dict[str, Any]:
        self._state = (
            self._workload.setup(request["seed"], self._device) if self._workload.has_state else None
        )
        formats.confine_default_device(self._workload)
        self._state_generators = state.generators(self._state)
        self._snapshot = None
        return {"leaves": {path: tree.shape_of(t) for path, t in state.walk(self._state).items()}}

    def _op_bend(self, request: dict[str, Any]) -> dict[str, Any]:
        """Give some of the state other values, before the first call, which may pack it."""
        bending.bend(state.walk(self._state), request["kinds"], request["seed"], request["signed"])
        if self._device != "cpu":
            torch.cuda.synchronize(self._device)
        return {}

    def _op_parameters(self, request: dict[str, Any]) -> dict[str, Any]:
        if not issubclass(type(self._state), torch.nn.Module):
            return {"digest": None}
        return {"digest": formats.parameter_digest(self._state)}

    def _op_adopt(self, request: dict[str, Any]) -> dict[str, Any]:
        loaded = torch.load(request["path"], weights_only=True, map_location=self._device)
        adopted = formats.adopt_parameters(self._state, loaded)
        if adopted:
            self._renew_snapshot()
        return {"adopted": adopted}

    def _op_statistics(self, request: dict[str, Any]) -> dict[str, Any]:
        """Give buffers of the candidate's own naming the running statistics that the baseline has."""
        if issubclass(type(self._state), torch.nn.Module) and self._workload.init_noise.give_statistics(
            self._state, request["statistics"]
        ):
            self._renew_snapshot()
        return {}

    def _renew_snapshot(self) -> None:
        """What was written into the state since it was set up is to be restored too."""
        if self._snapshot is not None:
            self._snapshot = None
            self._snapshot = state.Snapshot(self._state)

    def _op_arena(self, request: dict[str, Any]) -> dict[str, Any]:
        driver = cuda.Driver() if self._device != "cpu" else None
        self._arena = memory.arena_from_message(request, self._channel.fds, driver)
        self._spec = request["spec"]
        if driver is None:
            self._bench = HostBench(self._arena, self._spec, self._watch)
        else:
            flush = self._bench.flush if self._bench is not None else None
            self._bench = CudaBench(self._arena, self._spec, self._watch, driver, self._device, flush)
            self._watch.hold(driver=driver)
        bench: Any = self._bench
        self._watch.hold(bench=bench, memory=bench.memory, arena=self._arena, shape=self._arena.shape)
        return {}

    def _op_contract(self, request: dict[str, Any]) -> dict[str, Any]:
        """Which inputs and state leaves the baseline changes, so that they count as outputs.

        `names` says where a candidate keeps those that it has not at the baseline's path.
        """
        self._contract = request
        if request["restore"] and self._snapshot is None:
            self._snapshot = state.Snapshot(self._state)
        gc.collect()
        gc.freeze()
        gc.disable()
        self._never_collected = _frozen()
        return {}

    # -- running ---------------------------------------------------------------------------------

    def _op_calls(self, request: dict[str, Any]) -> dict[str, Any]:
        bench: CallBench = self._bench
        mode, keep, poison = request["mode"], request["keep"], request["poison"]
        carry, decoys, paced = request["carry"], request["decoys"], request["paced"]
        call, flushes = self._workload.call, request["flushes"]
        leaves: list[Any] = []
        last: Any = None
        bent: set[int] = set()
        self._kept.clear()
        self._state_ranges[:] = self._where_state_lies()
        self._peak = max(self._peak, self._device_peak())
        self._watch.found.update(
            f"worker.{n}" for n, kind in _KINDS.items() if type(vars(self)[n]) is not kind
        )
        self._watch.found.update(f"worker.{name}" for name in vars(self) if name in vars(_Worker))
        look_at_own = self._watch.look_at(worker=vars(self), contract=self._contract, spec=self._spec)
        started = _clock()
        for index, (slot, seed) in enumerate(zip(request["slots"], request["seeds"], strict=True)):
            if not (carry and index):
                if self._snapshot is not None:
                    self._snapshot.restore()
                for generator in self._generators:
                    _manual_seed(generator, seed)
                state.seed(self._state_generators, seed)
            if poison:
                self._poison()
            args = bench.place(slot, mode, flushes, decoys[index] if index < len(decoys) else [])
            if request["idle"]:
                if self._contract["state"]:
                    state.leaves(self._state)
                    self._where_state_lies()
                if paced:
                    bench.memory.synchronize()
                continue
            output = bench.timed(index, mode, paced, call, self._state, args)
            look_at_own()
            bent.update(bench.bent(slot))
            modes = _active_modes()
            if modes:
                return {"modes": modes, "index": index}
            facts = self._copy_out(slot, output)
            leaves.append(facts if facts != last else "same")
            last = facts
            if keep:
                self._kept.append((slot, tree.flatten(output, "out")))
            del output, args
        enqueued = _clock() - started
        times = bench.times(len(leaves))
        return {
            "ns": times.own,
            "host": times.host,
            "enqueued": enqueued,
            "late": times.late,
            "waited": times.waited,
            "leaves": leaves,
            "hooks": [*sorted(bench.hooks), *(f"a replaced {name}" for name in sorted(self._watch.found))],
            "bent": sorted(bent),
        }

    def _op_calls_within(self, request: dict[str, Any]) -> dict[str, Any]:
        with time_limit(request["seconds"]):
            return self._op_calls(request)

    def _copy_out(self, slot: int, output: Any) -> list[dict[str, Any]]:
        """Raw bytes of every output leaf into the arena, and what the leaves are."""
        assert self._arena is not None
        found: list[tuple[str, Any]] = []
        within: list[tree.Within] = []
        for path, value, around in tree.leaves(output, "out"):
            found.append((path, value))
            within.append(around)
        # What the caller holds; the containers that it was passed in are the call's to refill.
        inputs = self._bench.given
        found += [(f"in:{i}", inputs[i]) for i in self._contract["inputs"]]
        found += [
            (f"in:{i}.grad", gradient)
            for i, t in enumerate(inputs)
            if tree.is_tensor(t) and tree.needs_gradient(t) and (gradient := tree.gradient(t)) is not None
        ]
        if self._contract["state"]:
            now, names = state.leaves(self._state), self._contract["names"]
            for path in self._contract["state"]:
                own = path if path in now else names.get(path)
                if own in now:
                    found.append((f"state:{path}", now[own]))
        facts: list[dict[str, Any]] = []
        places: list[Place] = []
        tensors: list[tuple[dict[str, Any], Place]] = []
        for path, value in found:
            fact = tree.facts_of(path, value)
            if fact["kind"] == "tensor":
                pointer, storage = tree.address(value)
                fact["need"] = align(fact["span"], ALIGN)
                fact["copied"] = fact["span"] == 0
                if fact["span"]:
                    place = Place.of(fact, pointer)
                    if path.startswith("out"):
                        places.append(place)
                    if storage != 0 and fact["device"] in ("cpu", self._spec["device"]):
                        tensors.append((fact, place))
            facts.append(fact)
        self._sizes[:] = self._copy(slot, tensors)
        for fact, around in zip(facts, within, strict=False):
            fact["within"] = list(around)
        # One that was given another class is bent, and asking it would run that class's code.
        owners = [(f"in:{i}", *tree.storage_range(t)) for i, t in enumerate(inputs) if tree.is_tensor(t)]
        owners.append(("exchange memory", *self._arena.range))
        if self._contract["state"]:
            # What a call puts in the state's place, gradients or a longer cache, lies somewhere else.
            self._state_ranges[:] = self._where_state_lies()
        shared = aliases(places, [*owners, *self._state_ranges])
        if "state" in shared.values():
            # The call may have freed that part of the state, gradients say, and been given the same memory.
            self._state_ranges[:] = self._where_state_lies()
            shared = aliases(places, [*owners, *self._state_ranges])
        for fact in facts:
            if fact["path"].startswith("out") and fact["kind"] == "tensor":
                fact["alias"] = shared.get(fact["path"])
        return facts

    def _copy(self, slot: int, tensors: list[tuple[dict[str, Any], Place]]) -> list[int]:
        """Copy what there is room for, note where it went, and return the sizes of what was copied.

        Outputs that lie side by side in one tensor span the same memory, which is copied once.
        """
        assert self._arena is not None
        base = at = self._arena.outputs_at(slot)
        end = base + self._arena.shape.output_bytes
        outputs = [(place.start, place.end) for _, place in tensors if place.path.startswith("out")]
        whole = dict(zip(outputs, stretches(outputs), strict=True))
        copied: dict[tuple[int, int], int] = {}
        for fact, place in tensors:
            own = (place.start, place.end)
            start, stop = whole[own] if place.path.startswith("out") else own
            if (place.start - start) % place.element:
                start, stop = own
            if (start, stop) not in copied and at + stop - start <= end:
                self._bench.copy_out(at, start, stop - start, fact["device"])
                copied[start, stop] = at
                at += align(stop - start, ALIGN)
            if (start, stop) in copied:
                fact["copied"] = True
                fact["offset"] = copied[start, stop] - base + place.start - start
        return [stop - start for start, stop in copied]

    def _where_state_lies(self) -> list[tuple[str, int, int]]:
        return [("state", *tree.storage_range(t)) for t in state.walk(self._state).values()]

    def _device_peak(self) -> int:
        return torch.cuda.max_memory_allocated(self._device) if self._device != "cpu" else 0

    def _poison(self) -> None:
        """Leave NaN bytes where the allocator will find room for the next output."""
        blocks = [torch.empty(size, dtype=torch.uint8, device=self._device) for size in self._sizes]
        for block in blocks:
            block.fill_(_POISON)

    def _op_again(self, request: dict[str, Any]) -> dict[str, Any]:
        """Copy the outputs that were kept once more, after a pause, to see whether they changed."""
        assert self._arena is not None
        _sleep(request["seconds"])
        self._bench.memory.synchronize()
        for slot, values in self._kept:
            tensors = []
            for _path, value in values:
                try:
                    fact = tree.facts_of("out", value)
                except RuntimeError:
                    # torch.compile's CUDA-graph outputs refuse to be read once a later call reused them.
                    self._drop_kept()
                    return {"overwritten": True}
                if fact["kind"] == "tensor" and fact["span"]:
                    pointer, storage = tree.address(value)
                    if storage != 0 and fact["device"] in ("cpu", self._spec["device"]):
                        tensors.append((fact, Place.of(fact, pointer)))
            self._copy(slot, tensors)
        self._bench.memory.synchronize()
        shared = _share_memory(
            [[value for _, value in values] for _, values in self._kept], self._bench.input_ranges()
        )
        shared = shared or self._spoil(request["spoil"])
        self._drop_kept()
        return {"shared": shared, "graphs": self._device != "cpu" and _inductor_graphs_active()}

    def _spoil(self, paths: list[str]) -> bool:
        """Write over the elements of held outputs, and nothing between them, as a caller may who owns them.

        Returns:
            Whether two of them are one memory: each gets a byte of its own, and must keep it.
        """
        places: list[Place] = []
        for _, values in self._kept:
            for path, value in values:
                fact = tree.facts_of(path, value)
                if path in paths and fact["kind"] == "tensor" and fact["span"]:
                    pointer, storage = tree.address(value)
                    places += [Place.of(fact, pointer)] if storage else []
        for number, place in enumerate(places):
            for start, size in pieces(place):
                memory.fill(start, _POISON - number % _POISONS, size)
        return any(
            memory.byte_at(place.start) != _POISON - number % _POISONS for number, place in enumerate(places)
        )

    def _drop_kept(self) -> None:
        self._kept = []
        self._forget_peak()

    def _forget_peak(self) -> None:
        if self._device != "cpu":
            # What keeping outputs took, or looking at the state, is no need of the workload's.
            torch.cuda.reset_peak_memory_stats(self._device)

    def _op_matmul(self, request: dict[str, Any]) -> dict[str, Any]:
        rate, dtype = fastest_matmul(self._device)
        return {"flops_per_s": rate, "dtype": dtype}

    def _op_inputs_back(self, request: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self._bench, CudaBench):
            self._bench.inputs_back(request["slot"])
            self._bench.driver.synchronize()
        return {}

    def _op_move(self, request: dict[str, Any]) -> dict[str, Any]:
        """Have the inputs of further calls lie elsewhere, as another caller's do. On a CPU each slot's do."""
        if isinstance(self._bench, CudaBench):
            # Where there is no room for two of each they stay.
            with suppress(torch.OutOfMemoryError):
                self._bench.move()
        return {}

    def _op_state_back(self, request: dict[str, Any]) -> dict[str, Any]:
        """Digests of the state's leaves, or of those asked for, to see which ones a call changes."""
        self._bench.memory.synchronize()
        self._peak = max(self._peak, self._device_peak())
        found = state.leaves(self._state)
        wanted = found if request.get("paths") is None else [p for p in request["paths"] if p in found]
        key, moments = request.get("key", ""), request.get("moments", False)
        digests = {path: digest(found[path], key, moments) for path in wanted}
        self._forget_peak()
        return {"digests": digests, "unseen": state.unseen(self._state) if wanted is found else {}}

    # -- facts -----------------------------------------------------------------------------------

    def _op_facts(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            # Calls that freeze what they made leave garbage that nobody will ever collect.
            "flags": {**flags.read(), "garbage_kept": _frozen() > self._never_collected},
            "replaced": self._watch.replaced(),
            "hooks": _hooks(),
            "refused": integrity.refused(),
            "device_peak": max(self._peak, self._device_peak()),
        }


def _share_memory(outputs: list[list[Any]], inputs: list[tuple[int, int]]) -> bool:
    """Whether outputs of different calls have elements in common, those that are views of inputs aside."""
    places = []
    for number, values in enumerate(outputs):
        for i, value in enumerate(values):
            fact = tree.facts_of(f"out{number}.{i}", value)
            if fact["kind"] == "tensor" and fact["span"]:
                place = Place.of(fact, tree.address(value)[0])
                if not any(place.start < end and start < place.end for start, end in inputs):
                    places.append((number, place))
    places.sort(key=lambda entry: entry[1].start)
    for i, (number, one) in enumerate(places):
        for other_number, other in places[i + 1 :]:
            if other.start >= one.end:
                break
            if number != other_number and overlap(one, other):
                return True
    return False


def _inductor_graphs_active() -> bool:
    """Whether torch.compile runs CUDA graphs in this process; their outputs are reused by design."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    return bool(trees and trees.get_manager(torch.cuda.current_device(), create_if_none_exists=False))


def _explain(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    user = [
        f
        for f in frames
        if not any(part in f.filename for part in ("trackside/workload", "/torch/", "contextlib.py"))
    ]
    where = f"{user[-1].filename}:{user[-1].lineno}" if user else ""
    out_of_memory = formats.is_out_of_memory(error)
    return {
        # Our own errors say in full what they found; their type would add nothing.
        "type": "" if isinstance(error, TracksideError) else type(error).__name__,
        "message": str(error)[:2000],
        "where": where,
        "memory": out_of_memory,
        "traceback": "".join(traceback.format_exception(error))[-4000:],
    }
