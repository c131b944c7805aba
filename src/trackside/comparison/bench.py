"""The judge's hands: the reference process, the arms' workers, and one timed slot from go to private copy."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trackside.comparison import answers, blame
from trackside.comparison.arms import BASELINE, CANDIDATE, Arm, Call, Slot
from trackside.comparison.checks import Ledger
from trackside.comparison.rooms import room_for, room_of, widest_room
from trackside.records.errors import TracksideError
from trackside.workload.channel import ChannelTimeout
from trackside.workload.fleet import Fleet, Process, ProcessFailed, Template
from trackside.workload.memory import ArenaShape, host_file

__all__ = ["Bench"]

_REFERENCE_TIMEOUT = 300.0
_START_TIMEOUT = 60.0

# Flushes before an untimed call on a GPU: some 300 µs, so that what starts before its inputs are there shows.
_FLUSHES = 4

# Seconds to draw a set in that a comparison can spare: a set that was drawn repeats nothing.
_SLOW_DRAW = 0.02

_clock = time.perf_counter_ns


class Bench:
    """Owns the processes of a trial and everything that is asked of them."""

    def __init__(
        self,
        fleet: Fleet,
        templates: list[Template],
        device: str,
        cpus: Sequence[int],
        judge_cpus: Sequence[int],
        readable: Sequence[str],
        build_timeout: float,
        ledger: Ledger,
        rng: random.Random,
    ) -> None:
        self.fleet, self.templates, self.device = fleet, templates, device
        self._cpus, self._judge_cpus, self._readable = cpus, judge_cpus, readable
        self.build_timeout = build_timeout
        self.further_timeout = 0.0
        self.bent_inputs: set[int] = set()
        """Inputs whose tensors the baseline itself leaves with another shape."""
        self.ledger, self.rng = ledger, rng
        # Workers can read the seeds of their calls, and a few hundred foretell all that this generator gives:
        # inputs, orders and moments of checks come from another.
        self._call_seeds = random.Random(rng.getrandbits(128))
        self._next = 0
        self.reference: Process
        self.arms: dict[str, Arm] = {}
        self.spec: dict[str, Any] = {}
        self.shape: int | None = None
        """The number of the shape that is drawn, among all that the baseline's file names."""
        self.contract: dict[str, Any] = {"inputs": [], "state": [], "names": {}, "restore": False}
        self.output_bytes = 1 << 16
        self.derive = False
        self.baseline: Path
        self.situation = self.remedy = ""
        """What is special about the calls being made, for whoever reads that one failed, and the way out."""
        self.others: Callable[[], int] = lambda: 0
        """How many processes of others compute on the GPU."""
        self.build_seconds = 0.0
        """Time of first loads, set-ups and calls, which may compile: not on the budget's account."""

    def id(self) -> int:
        self._next += 1
        return self._next

    def seed(self) -> int:
        """The random seed of a call."""
        return self._call_seeds.getrandbits(62)

    def set_seed(self) -> int:
        """The random seed of a set of inputs, which no worker is told."""
        return self.rng.getrandbits(62)

    # -- the reference process -------------------------------------------------------------------

    def start_reference(self, path: Path) -> dict[str, Any]:
        self.baseline = path
        self.reference = self._spawn("reference", path, 0, "trackside.comparison.reference", self._judge_cpus)
        return self.ask("load", path=str(path))

    def ask(self, op: str, fds: Sequence[int] = (), **message: Any) -> dict[str, Any]:
        """Ask the reference process; what goes wrong there is never the candidate's fault."""
        try:
            answer = self.reference.ask(op, self._patience(op), fds, **message)
        except ProcessFailed as error:
            blame.reference_failed(op, error)
        raised = answer.get("raised")
        if raised:
            blame.reference_raised(op, raised)
        return answer

    def _patience(self, op: str) -> float:
        """The user's code may take the build's time to load; later on an oracle may be slow."""
        loading = ("load", "setup", "specify")
        return self.build_timeout if op in loading else max(self.build_timeout, _REFERENCE_TIMEOUT)

    def draw(self, kind: str = "fresh", base: int | None = None) -> int | None:
        """A new set's id, or None when that kind of set cannot be made from these inputs."""
        set_id = self.id()
        answer = self.ask("draw", id=set_id, kind=kind, seed=self.set_seed(), shape=self.shape, base=base)
        return None if "skipped" in answer else set_id

    def draw_many(self, count: int, kind: str = "fresh") -> list[int]:
        """Ids of that many new sets."""
        made = [self.id() for _ in range(count)]
        self.ask("draw_many", ids=made, kind=kind, seeds=[self.set_seed() for _ in made], shape=self.shape)
        return made

    def choose_drawing(self, run_seconds: float) -> None:
        """Derive timed sets where drawing one takes longer than a call and than deriving it."""
        drawing = self._seconds_to_draw("fresh")
        if drawing < max(_SLOW_DRAW, run_seconds):
            return
        while self.ask("draw", id=self.id(), kind="base", seed=self.set_seed(), shape=self.shape)["more"]:
            pass
        self.derive = self._seconds_to_draw("derived") < drawing

    def _seconds_to_draw(self, kind: str) -> float:
        taken = []
        for _ in range(2):
            began = time.monotonic()
            made = self.draw(kind)
            taken.append(time.monotonic() - began)
            self.ask("forget", sets=[made], calls=[])
        return min(taken)

    def draw_timed(self, count: int = 1) -> list[int]:
        """Sets for timed calls: drawn, or derived where drawing takes longer than running."""
        return self.draw_many(count, "derived" if self.derive else "fresh")

    # -- arms ------------------------------------------------------------------------------------

    def start(
        self, name: str, path: Path, format: str, template: int, setup_seed: int, slots: int, timeout: float
    ) -> Arm:
        """Start a fresh worker for an arm: load its file, set up, map its arena."""
        arm = self.start_all({name: path}, format, template, setup_seed, slots, timeout)[0]
        self.build_seconds += arm.build_seconds
        return arm

    def start_all(
        self,
        files: dict[str, Path],
        format: str,
        template: int,
        setup_seed: int,
        slots: int,
        timeout: float,
        bent: dict[str, Any] | None = None,
    ) -> list[Arm]:
        """Start fresh workers in that order, once all old ones of these arms have gone.

        Were they replaced one by one, each would inherit its predecessor's memory, and with it its speed.
        What is to be `bent` in their state is bent right after `setup`.
        """
        self.stop(*files)
        if not self.arms:
            self.ask("drop_arenas")
        started = time.monotonic()
        arms = [
            Arm(
                name,
                path,
                self._spawn(name, path, template, "trackside.workload.worker", self._cpus),
                timeout,
            )
            for name, path in files.items()
        ]
        for arm in arms:
            self.arms[arm.name] = arm
            self._post(
                arm,
                "load",
                path=str(arm.path),
                role=arm.name,
                format=format,
                baseline=str(self.baseline),
            )
        for arm in arms:
            arm.borrows_setup = self._answer(arm, "load", self.build_timeout)["borrows_setup"]
            self.tell(arm, "setup", self.build_timeout, seed=setup_seed)
            if bent is not None:
                self.tell(arm, "bend", self.build_timeout, **bent)
            self.map_arena(arm, slots)
            arm.build_seconds = time.monotonic() - started
        return arms

    def stop(self, *names: str) -> None:
        """End the workers of these arms, where they have one."""
        old = [arm for name in names if (arm := self.arms.pop(name, None)) is not None]
        for arm in old:
            arm.process.strike()
        for arm in old:
            arm.process.kill()

    def _spawn(self, name: str, path: Path, template: int, module: str, cpus: Sequence[int]) -> Process:
        try:
            return self.fleet.spawn(
                self.templates[template % len(self.templates)],
                name,
                module,
                self.device,
                cpus,
                name,
                path if path.is_dir() else path.parent,
                self._readable,
                _START_TIMEOUT,
            )
        except (ChannelTimeout, ProcessFailed) as error:
            raise TracksideError(
                "internal",
                f"the {name}'s process did not start within {_START_TIMEOUT:.0f} s: {error}",
                "look at the machine's load and memory, then run again",
            ) from error

    def map_arena(self, arm: Arm, slots: int) -> None:
        shape = ArenaShape(slots, self.spec["bytes"], self.output_bytes)
        fds = [host_file(shape)] if self.device == "cpu" else []
        try:
            opened = self.ask("arena", fds, arm=arm.name, shape=shape.to_json())
            self.tell(arm, "arena", 60, fds, shape=shape.to_json(), spec=self.spec, **opened)
        finally:
            for fd in fds:
                os.close(fd)
        arm.slots, arm.holds = slots, {}
        self.tell(arm, "contract", 60, **self.contract)

    def enlarge(self, room: int) -> None:
        """Give the outputs of every slot that much room; what the slots held is gone."""
        self.output_bytes = room
        for arm in self.arms.values():
            frozen = arm.process.frozen
            self.map_arena(arm, arm.slots)
            if frozen:
                arm.process.freeze()
        self.ask("reserve", bytes=room, count=4 * max(arm.slots for arm in self.arms.values()))

    def tell(
        self, arm: Arm, op: str, timeout: float, fds: Sequence[int] = (), **message: Any
    ) -> dict[str, Any]:
        """Ask an arm; what goes wrong in the candidate rejects it, in the baseline it is an error."""
        self._post(arm, op, fds, **message)
        return self._answer(arm, op, timeout)

    def _post(self, arm: Arm, op: str, fds: Sequence[int] = (), **message: Any) -> None:
        if arm.process.frozen:
            arm.process.thaw()
        try:
            arm.process.post(op, fds, **message)
        except ProcessFailed as error:
            blame.arm_failed(self.ledger, arm.name, op, error, self.situation + self.remedy)

    def _answer(self, arm: Arm, op: str, timeout: float) -> dict[str, Any]:
        try:
            answer = arm.process.answer(op, timeout)
        except ProcessFailed as error:
            blame.arm_failed(self.ledger, arm.name, op, error, self.situation + self.remedy)
        if not answers.well_formed(op, answer):
            if arm.name == CANDIDATE:
                self.ledger.failed("protocol-intact", f"the candidate's answer to `{op}` is malformed")
            raise TracksideError(
                "internal", f"the {arm.name}'s answer to `{op}` is malformed", answers.REPORT
            )
        raised = answer.get("raised")
        if raised:
            blame.arm_raised(self.ledger, arm.name, op, raised, self.situation, self.remedy, self.others)
        return answer

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Other workers for both arms meanwhile; the present ones wait, and have their arenas again after."""
        usual, self.arms = self.arms, {}
        try:
            yield
        finally:
            self.stop(*self.arms)
            self.arms = usual
        for arm in usual.values():
            self.map_arena(arm, arm.slots)

    # -- one slot --------------------------------------------------------------------------------

    def run(
        self,
        arm: Arm,
        sets: Sequence[int],
        seeds: Sequence[int],
        mode: str | None = None,
        keep: bool = False,
        poison: bool = False,
        flushes: int = _FLUSHES,
        timeout: float | None = None,
        repeat: int = 0,
        building: bool = False,
        carry: bool = False,
        fit: bool = True,
        paced: bool = False,
        limit: float = 0.0,
    ) -> Slot:
        """Fill, go, take: the judge's clock runs from before the inputs exist to after it holds the outputs.

        A frozen arm on a CPU can neither read nor write. There the clock starts when it is thawed and stops
        when it is frozen again, without the judge's own copies; kernels on a GPU cannot be frozen.

        With `repeat` the last call is made that many times more; its slot then holds the last of them. A call
        that may compile is `building`: it has the build's time, which is not on the budget's account. Calls
        that `carry` on start from the state and random stream that the call before left. To `fit` is to make
        room for outputs that have none, and to run again. `Paced` calls on a GPU wait for each other. Code
        that is not done after the `limit` in seconds, where there is one, is made to raise.
        """
        slots = list(range(len(sets)))
        calls = [self.id() for _ in sets]
        count = len(sets) + repeat
        shown = [*slots[:-1], count - 1]
        held = arm.process.frozen and self.device == "cpu"
        t0 = _clock()
        # Filled while the arm is frozen: no thread of it can watch the slots and start before go.
        self.ask("fill", arm=arm.name, slots=slots, sets=list(sets))
        if held:
            t0 = _clock()
        answer = self.tell(
            arm,
            "calls_within" if limit else "calls",
            timeout or (self.build_timeout if building else self._time_for(arm, count)),
            seconds=limit,
            slots=slots + slots[-1:] * repeat,
            seeds=[*seeds, *list(seeds[-1:]) * repeat],
            mode=mode or ("plain" if self.device == "cpu" else "cold"),
            carry=carry,
            decoys=self._decoys(count, len(sets)),
            keep=keep,
            poison=poison,
            flushes=flushes,
            paced=paced,
            idle=False,
        )
        if held:
            t3 = self.freeze(arm)
        every = self._leaves(arm, answer, count)
        if fit and self._make_room(arm, every, sets, seeds, carry):
            if building:
                self.build_seconds += (_clock() - t0) / 1e9
            again = (mode, keep, poison, flushes, timeout, repeat, building, carry)
            return self.run(arm, sets, seeds, *again, paced=paced, limit=limit)
        arm.holds.update(zip(slots, zip(sets, seeds, strict=True), strict=True))
        leaves = [every[i] for i in shown]
        sizes = [
            max((f["offset"] + f["span"] for f in facts if "offset" in f), default=0) for facts in leaves
        ]
        taken = self.ask("take", arm=arm.name, slots=slots, calls=calls, bytes=sizes)
        if not held:
            t3 = _clock()
        if building:
            self.build_seconds += (t3 - t0) / 1e9
        if not taken["guards"] and arm.name == CANDIDATE:
            self.ledger.failed(
                "protocol-intact", "the candidate wrote past the end of a slot of shared memory"
            )
        try:
            times = answers.read_times(answer, count, paced)
        except (KeyError, TypeError, ValueError, OverflowError):
            if arm.name == CANDIDATE:
                self.ledger.failed("protocol-intact", "the candidate's answer to `calls` is malformed")
            raise TracksideError(
                "internal", f"the {arm.name}'s answer to `calls` is malformed", answers.REPORT
            ) from None
        if arm.name == BASELINE:
            self.bent_inputs.update(times.bent)
        elif not self.bent_inputs.issuperset(times.bent):
            self.ledger.failed(
                "inputs-unchanged",
                f"input {min(set(times.bent) - self.bent_inputs)}: the caller's tensor was left with another "
                "shape, stride or place",
            )
        made = [
            Call(call, set_, seed, facts, times.ns[i], times.host[i])
            for call, set_, seed, facts, i in zip(calls, sets, seeds, leaves, shown, strict=True)
        ]
        return Slot(made, t3 - t0, times.enqueued_ns, times.hooks, times.late_ns, times.waited, max(sizes))

    def run_idle(self, arm: Arm, count: int, flushes: int, paced: bool = False) -> int:
        """What an arm takes on the judge's clock for so many calls when it makes none, in ns."""
        first, others = arm.process.thread_ns()
        began = _clock()
        self.tell(
            arm,
            "calls",
            self._time_for(arm, count),
            slots=[0] * count,
            seeds=[self.seed()] * count,
            mode="plain" if self.device == "cpu" else "cold",
            carry=False,
            decoys=[],
            keep=False,
            poison=False,
            flushes=flushes,
            paced=paced,
            idle=True,
        )
        slot_ns = self.freeze(arm) - began
        first_after, others_after = arm.process.thread_ns()
        # Restoring takes what it takes; threads that are busy beyond helping with it do something else.
        helping = (len(self._cpus) - 1) * (first_after - first)
        return max(0, slot_ns - max(0, others_after - others - helping))

    def _time_for(self, arm: Arm, calls: int) -> float:
        return arm.call_timeout + (calls - 1) * self.further_timeout

    def run_baseline(self, sets: Sequence[int], seeds: Sequence[int], carry: bool = False) -> Slot:
        """Run the baseline, untimed, where the other arm ran; it stays frozen if it was."""
        arm = self.arms[BASELINE]
        frozen = arm.process.frozen
        slot = self.run(arm, sets, seeds, timeout=self.build_timeout, carry=carry)
        self.tell(arm, "inputs_back", 60, slot=len(sets) - 1)
        if frozen:
            self.freeze(arm)
        return slot

    def take_inputs(self, name: str, slot: int, call: Call, inputs: Sequence[int]) -> Call:
        """A call's inputs as it left them in an arm's arena, as the outputs of a call of their own."""
        made = self.id()
        leaves = self.ask("take_inputs", arm=name, slot=slot, call=made, leaves=list(inputs))["leaves"]
        return Call(made, call.set, call.seed, leaves, call.ns, call.host)

    def freeze(self, arm: Arm) -> int:
        """Stop an arm and everything that it started, be it just now; returns when all had stopped."""
        arm.process.freeze()
        stopped = _clock()
        if self.fleet.someone_forked():
            known = set(arm.process.helpers)
            self.strangers()
            if self.fleet.orphans or not known >= set(arm.process.helpers):
                arm.process.freeze()
                stopped = _clock()
        return stopped

    def _decoys(self, count: int, slots: int) -> list[list[int]]:
        """For each call on a GPU, slots whose inputs are put in place before the right ones: none to two."""
        if self.device == "cpu" or slots < 2:
            return []
        return [self.rng.choices(range(slots), k=self.rng.randrange(3)) for _ in range(count)]

    def _leaves(self, arm: Arm, answer: dict[str, Any], count: int) -> list[list[dict[str, Any]]]:
        if "modes" in answer:
            detail = (
                f"{answer['modes']} torch dispatch or function mode(s) active after call "
                f"{answer.get('index', 0)}: they could do the work inside the harness's own copy"
            )
            if arm.name == CANDIDATE:
                self.ledger.failed("harness-intact", detail)
            raise TracksideError(
                "workload", f"the {arm.name} leaves {detail}", "close the mode before `run` returns"
            )
        try:
            return answers.read_leaves(answer, count, self.output_bytes, arm.name == BASELINE)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            if arm.name == CANDIDATE:
                self.ledger.failed(
                    "protocol-intact", f"the candidate's description of its outputs is malformed: {error!r}"
                )
            raise TracksideError(
                "internal",
                f"the {arm.name}'s description of its outputs is malformed: {error!r}",
                answers.REPORT,
            ) from None

    def _make_room(
        self,
        arm: Arm,
        found: list[list[dict[str, Any]]],
        sets: Sequence[int],
        seeds: Sequence[int],
        carry: bool,
    ) -> bool:
        """Whether outputs had no room and have it now: lengths may depend on values, and views span much.

        A candidate's outputs may be spread over more memory than the baseline's on the same inputs, within
        bounds; beyond them they stay unread, which rejects it. That it sees inputs twice happens a few times
        at most, since room grows by a factor.
        """
        needed = max(map(room_of, found))
        unread = any(f["kind"] == "tensor" and not f["copied"] for facts in found for f in facts)
        if not unread or needed <= self.output_bytes:
            return False
        if arm.name == BASELINE:
            self.enlarge(room_for(needed))
            return True
        if BASELINE not in self.arms:
            return False
        standard = self.run_baseline(sets, seeds, carry)
        self.ask("forget", sets=[], calls=[call.id for call in standard.calls])
        if needed <= self.output_bytes:
            return True
        if needed > widest_room(call.leaves for call in standard.calls):
            return False
        self.enlarge(2 * needed)
        return True

    def strangers(self) -> dict[int, int]:
        """CPU time of processes beside the arms and the reference; what an arm forked is among them."""
        return self.fleet.strangers([*(arm.process for arm in self.arms.values()), self.reference])

    def errors(self, call: Call, bulk: bool = False) -> list[dict[str, Any]]:
        """A call's errors against the oracle, leaf by leaf; with `bulk` also without jumps."""
        known = call.errors is not None and (
            not bulk or all("bulk" in leaf for leaf in call.errors if "bins" in leaf)
        )
        if not known:
            answer = self.ask(
                "check", call=call.id, set=call.set, seed=call.seed, leaves=call.leaves, bulk=bulk
            )
            call.errors = answer["leaves"]
        assert call.errors is not None
        return call.errors

    def forget(self, slots: Sequence[Slot]) -> None:
        self.ask(
            "forget",
            sets=sorted({c.set for s in slots for c in s.calls}),
            calls=[c.id for s in slots for c in s.calls],
        )
