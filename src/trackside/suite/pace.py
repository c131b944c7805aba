"""How long a workload takes in units of a reference workload: both timed in turn, in fresh processes.

The two need not compute the same, so this is no comparison: each file is its own authority, and is checked
against its own oracle once. The ratio survives a change of the machine's speed, which raw times do not.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

import trackside
from trackside.comparison.arms import BASELINE, Slot
from trackside.comparison.baseline import study_baseline
from trackside.comparison.bench import Bench
from trackside.comparison.checks import Ledger, Stop
from trackside.comparison.crew import Crew, default_threads, share_cpus
from trackside.comparison.measure import HostTime, plan_batch, plan_flushes
from trackside.comparison.study import AUDIT_SLOTS, Study
from trackside.machine.facts import MachineFacts, gpu_numbered
from trackside.machine.facts import facts as machine_facts
from trackside.machine.telemetry import Recorder, Telemetry
from trackside.records.devices import gpu_index
from trackside.records.errors import TracksideError
from trackside.stats import quiet
from trackside.stats.intervals import t_interval
from trackside.stats.quads import Order, pair_median, quad_log_ratio
from trackside.store.lock import DeviceLock
from trackside.suite.quiet import lock_key
from trackside.suite.suite_file import Entry
from trackside.workload import formats

__all__ = ["Pace", "ShapePace", "measure_pace"]

Progress = Callable[[dict[str, Any]], None]

# As in a comparison: forks of one template share hash seed and layout, so pairs take turns over several.
_TEMPLATES: Final = 3
_DEFAULT_PAIRS: Final = {"cpu": 12, "cuda": 8}
_LEAST_PAIRS: Final = 6
# A pair's median needs some quads, and more than this narrow the interval no further: pairs differ.
_FEWEST_QUADS, _MOST_QUADS = 6, 60
# Slots before the first that counts: a fresh process pays for its memory for some calls.
_WARM_SLOTS: Final = 4
_TRIED_FLUSHES, _TRIALS = 2, 3
_PATIENCE, _SHORTEST_TIMEOUT = 100, 60.0
# Beyond this share of stolen time nothing that was measured is believed; as compare has it.
_MOST_STOLEN: Final = 0.10
# Where more than this share of quads is disturbed, to drop them would be to select, and to keep them would be
# worse than in a comparison: a long call is preempted where a short one is through. With 80 % disturbed, the
# ratio of one unchanged 11 ms workload to a 2.4 ms one was 4.2 to 7.1 (n = 8).
_MOST_DISTURBED: Final = 0.40
_UNWATCHED: Final = (
    "the GPU could not be watched, so other processes on it were not seen: see that nvidia-ml-py is "
    "installed and `nvidia-smi` works"
)
# Another pair may take this much more than the time there is.
_LONGER: Final = 1.2
# On larger guests spinning everywhere would cost the workloads their clock speed.
_MOST_AWAKE: Final = 8


@dataclass
class ShapePace:
    """The ratio at one shape: time of the file over time of the reference, as a logarithm per fresh pair."""

    shape: Any
    log_ratios: list[float] = field(default_factory=list)
    quads: int = 0
    quads_kept: int = 0
    disturbed_share: float = 0.0
    """Of the quads, how many saw other work; on a GPU, whose clock does not wait for CPUs, none counts."""
    file_us: float = 0.0
    reference_us: float = 0.0


@dataclass
class Pace:
    """All shapes of a file, and what was wrong with the machine meanwhile."""

    shapes: list[ShapePace]
    threads: int
    disturbed: str | None = None
    """Why the figures are not to be believed."""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_pace(entry: Entry, progress: Progress = lambda event: None) -> Pace:
    """Time an entry's file against its reference, holding the device meanwhile.

    Raises:
        TracksideError: a file that cannot be used, or is wrong by its own oracle; no such device here.
    """
    assert entry.reference is not None
    files = {"file": entry.candidate.resolve(), "reference": entry.reference.resolve()}
    facts = {name: formats.describe(path, "baseline") for name, path in files.items()}
    if entry.kind == "cuda" and not any(Path("/dev").glob("nvidia[0-9]*")):
        raise TracksideError(
            "device",
            "found no NVIDIA GPU here (no /dev/nvidia0)",
            'use device = "cpu", or run on a machine with a GPU',
        )
    with ExitStack() as stack:
        return _Timing(entry, facts, progress).run(stack)


class _Timing:
    def __init__(self, options: Entry, facts: dict[str, formats.FileFacts], progress: Progress) -> None:
        self.options, self.facts, self.progress = options, facts, progress
        self.machine: MachineFacts = machine_facts()
        self.threads = default_threads(options.kind) if options.threads is None else options.threads
        allowed = sorted(os.sched_getaffinity(0))
        self.judge_cpus, self.cpus = share_cpus(allowed, options.kind, self.threads)
        self.rng = random.Random(secrets.randbits(128))

    def run(self, stack: ExitStack) -> Pace:
        options = self.options
        began = time.monotonic()
        crew = stack.enter_context(Crew(self.threads))
        self.progress({"phase": "start"})
        crew.start(1)
        number = gpu_index(options.device)
        gpu = None if number is None else gpu_numbered(self.machine, number)
        asked = time.monotonic()
        lock = DeviceLock(
            lock_key(options.device),
            verb="check",
            on_wait=lambda holder: self.progress({"phase": "waiting", "holder": holder}),
        )
        stack.enter_context(lock)
        began += time.monotonic() - asked
        stack.callback(crew.fleet.sweep)
        crew.start(_TEMPLATES)
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.judge_cpus)
        stack.callback(os.sched_setaffinity, 0, before)
        crew.fleet.pin(self.judge_cpus)
        recorder = Recorder(gpu_index=gpu, cpus=self.cpus)
        recorder.start()
        stack.callback(recorder.stop)
        arms = {name: _Arm(name, self, crew, self.facts[name], options) for name in ("reference", "file")}
        shapes = arms["file"].loaded["shapes"] or [None]
        arms["reference"].prepare(0)
        found: list[ShapePace] = []
        stack.enter_context(crew.fleet.awake(self._idle_prone_cpus()))
        first = time.monotonic_ns()
        for number, shape in enumerate(shapes):
            self.progress({"phase": "shape", "shape": shape, "number": number + 1, "count": len(shapes)})
            arms["file"].prepare(number)
            spent = time.monotonic() - began - sum(arm.bench.build_seconds for arm in arms.values())
            left = options.budget * (number + 1) / len(shapes) - spent
            found.append(self._shape(arms, shape, max(2.0, left)))
            arms["file"].bench.stop(BASELINE)
        last = time.monotonic_ns()
        pace = Pace(found, self.threads, seconds=time.monotonic() - began)
        share = max(shape.disturbed_share for shape in found)
        pace.disturbed = _disturbed(recorder, (first, last), self.cpus, options.kind, share)
        pace.notes = recorder.disturbances(first, last, self.cpus, ["steal", "quota", "pressure"])
        if options.kind == "cuda" and not recorder.watches_gpu:
            pace.notes.append(_UNWATCHED)
        return pace

    def _idle_prone_cpus(self) -> list[int]:
        """As in a comparison: the CPUs that a hypervisor would take away between slots."""
        guest = self.machine.virtualisation not in (None, "none")
        apart = not set(self.cpus) & set(self.judge_cpus)
        few = len(self.cpus) <= _MOST_AWAKE
        return self.cpus if guest and few and apart and self.options.kind == "cpu" else []

    def _shape(self, arms: dict[str, _Arm], shape: Any, seconds: float) -> ShapePace:
        pairs = self.options.pairs or _DEFAULT_PAIRS[self.options.kind]
        result = ShapePace(shape)
        made: list[list[_Quad]] = []
        began = time.monotonic()
        while len(made) < pairs:
            index = len(made)
            # Who starts first is given memory first: half of the pairs each way.
            order = list(arms.values()) if index % 2 else list(arms.values())[::-1]
            for arm in order:
                arm.fresh(index + 1)
            for _ in range(_WARM_SLOTS):
                for arm in order:
                    arm.slot(1)
            quads: list[_Quad] = []
            made.append(quads)
            while len(quads) < _MOST_QUADS:
                quads.append(self._quad(arms))
                share = seconds * (index + 1) / pairs
                if len(quads) >= _FEWEST_QUADS and time.monotonic() - began >= share:
                    break
            so_far = t_interval([_middle(one) for one in made])
            self.progress(
                {
                    "phase": "pairs",
                    "pair": index + 1,
                    "pairs": pairs,
                    "ratio": math.exp(so_far.mid),
                    "shape": shape,
                }
            )
            per_pair = (time.monotonic() - began) / len(made)
            if len(made) >= _LEAST_PAIRS and time.monotonic() - began + per_pair > _LONGER * seconds:
                break
        every = [quad for quads in made for quad in quads]
        kept = every
        if self.options.kind == "cpu":
            kept, result.disturbed_share = _undisturbed(every)
        result.quads, result.quads_kept = len(every), len(kept)
        spared = set(map(id, kept))
        # A pair whose quads were all disturbed keeps them: to drop it would be to choose among pairs.
        result.log_ratios = [
            _middle([quad for quad in quads if id(quad) in spared] or quads) for quads in made
        ]
        for letter, name in (("A", "reference_us"), ("B", "file_us")):
            times = [
                ns for quad in kept for ns, arm in zip(quad.ns, quad.order, strict=True) if arm == letter
            ]
            setattr(result, name, median(times) / 1e3)
        return result

    def _quad(self, arms: dict[str, _Arm]) -> _Quad:
        order: Order = "ABBA" if self.rng.random() < 0.5 else "BAAB"
        slots = [arms["reference" if letter == "A" else "file"].slot() for letter in order]
        return _Quad(order, [s[0] for s in slots], [s[1] for s in slots], [s[2] for s in slots])


@dataclass(frozen=True)
class _Quad:
    """Four slots, ABBA or BAAB by a coin; A is the reference."""

    order: Order
    ns: list[float]
    """The middle call of each slot."""
    wall: list[float]
    cpu: list[float]
    """All calls of each slot."""


def _disturbed(
    telemetry: Recorder | Telemetry, window: tuple[int, int], cpus: list[int], kind: str, share: float
) -> str | None:
    """Why nothing that was measured is believed; None where it is."""
    stolen = telemetry.stolen(*window, cpus) if kind == "cpu" else 0.0
    # Another process on the GPU slows a workload and its reference by different factors.
    noticed = telemetry.disturbances(*window, cpus, ["slowdown", "others"])
    if stolen > _MOST_STOLEN:
        return (
            f"the hypervisor kept a CPU from the workloads for {stolen:.0%} of the time, and "
            f"{_MOST_STOLEN:.0%} at most may be"
        )
    if noticed:
        return "; ".join(noticed)
    if share > _MOST_DISTURBED:
        return f"{share:.0%} of quads were disturbed by other work, and {_MOST_DISTURBED:.0%} at most may be"
    return None


def _middle(quads: list[_Quad]) -> float:
    """ln(time of the file / time of the reference) of one pair."""
    return -pair_median([quad_log_ratio(q.ns, q.order) for q in quads], [q.order for q in quads])


def _undisturbed(quads: list[_Quad]) -> tuple[list[_Quad], float]:
    """The quads without those in which other work ran, unless they are too many; and the share of these."""
    arms = np.array([list(q.order) for q in quads])
    ratios = quiet.waiting(np.array([q.wall for q in quads]), np.array([q.cpu for q in quads]), arms)
    share = quiet.disturbed_share(ratios, arms)
    if share > _MOST_DISTURBED:
        return quads, share
    mask = quiet.keep_quiet(ratios, arms, max_drop=_MOST_DISTURBED)
    return [quad for quad, keep in zip(quads, mask, strict=True) if keep], share


class _Arm:
    """One file with its own bench: its inputs, its oracle, its present worker."""

    def __init__(
        self, name: str, timing: _Timing, crew: Crew, facts: formats.FileFacts, options: Entry
    ) -> None:
        self.name, self.facts, self.options = name, facts, options
        self._fleet, self._scope = crew.fleet, crew.fleet.folder / name
        self._study: Study | None = None
        self._batch = self._flushes = 1
        self._paced = False
        path = facts.path.resolve()
        readable = {
            sys.prefix,
            sys.base_prefix,
            *(p for p in sys.path if p),
            str(Path(trackside.__file__).parent.parent),
            str(path if path.is_dir() else path.parent),
        }
        self.bench = Bench(
            crew.fleet,
            crew.templates,
            "cpu" if options.kind == "cpu" else f"cuda:{gpu_index(options.device)}",
            timing.cpus,
            timing.judge_cpus,
            sorted(readable),
            options.build_timeout,
            Ledger(frozenset()),
            timing.rng,
        )
        self._fleet.scope = self._scope
        self.loaded = self.bench.start_reference(path)

    def prepare(self, shape: int) -> None:
        """Learn what the file does at a shape, check it against its oracle, and plan its slots."""
        bench, options = self.bench, self.options
        self._fleet.scope = self._scope
        bench.ledger = Ledger(frozenset())
        bench.shape = shape if self.loaded["shapes"] else None
        bench.derive, bench.output_bytes = False, 1 << 16
        bench.bent_inputs.clear()
        bench.contract = {"inputs": [], "state": [], "names": {}, "restore": False}
        bench.ask("contract", inputs=[], state=[])
        seed = bench.seed()
        bench.ask("setup", seed=seed, save=None)
        described = bench.ask("specify", seeds=[bench.set_seed(), bench.set_seed()], shape=bench.shape)
        bench.spec = described["spec"]
        try:
            study = self._study = study_baseline(
                bench, self.facts.path, self.facts.format, dict(self.loaded), seed, options.build_timeout
            )
            bench.ledger.settle()
        except Stop as stop:
            raise TracksideError(
                "workload",
                f"{self.facts.path.name} cannot be timed: {stop.check}: {stop.detail}",
                "repair the file; `trackside compare FILE FILE` shows more",
            ) from stop
        bench.further_timeout = _PATIENCE * study.run_ns / 1e9
        bench.arms[BASELINE].call_timeout = self._timeout()
        self._plan_flushes()
        free = bench.ask("free_memory")["bytes"]
        call_bytes = bench.spec["bytes"] + bench.output_bytes
        self._batch = plan_batch(study.run_ns, study.run_ns, call_bytes, options.kind, self._flushes, free)
        if described["derivable"]:
            bench.choose_drawing(study.run_ns / 1e9)
        bench.stop(BASELINE)

    def _timeout(self) -> float:
        assert self._study is not None
        return max(_SHORTEST_TIMEOUT, _PATIENCE * self._study.run_ns / 1e9)

    def _plan_flushes(self) -> None:
        """On a GPU: how many flushes hide the host's part of a call, and whether calls must be paced."""
        assert self._study is not None
        if self.options.kind == "cpu":
            return
        bench = self.bench
        arm = bench.arms[BASELINE]
        slots: list[Slot] = []
        for _ in range(_TRIALS):
            sets = bench.draw_many(AUDIT_SLOTS)
            slots.append(bench.run(arm, sets, [bench.seed() for _ in sets], flushes=_TRIED_FLUSHES))
            bench.forget(slots[-1:])
        seen = [waited for slot in slots for waited in slot.waited[1:]]
        host = HostTime(
            median(s.enqueued_ns / len(s.calls) for s in slots),
            min(c.ns for s in slots for c in s.calls),
            2 * sum(seen) > len(seen),
        )
        self._study.run_ns = host.run_ns
        self._flushes, host_bound = plan_flushes([host])
        self._paced = host.waits or host_bound

    def fresh(self, template: int) -> None:
        """A fresh worker from another template, frozen until its first slot."""
        bench = self.bench
        self._fleet.scope = self._scope
        seed = bench.seed()
        bench.ask("setup", seed=seed, save=None)
        slots = max(2, self._batch + (self.options.kind == "cuda"))
        arm = bench.start_all(
            {BASELINE: self.facts.path}, self.facts.format, template, seed, slots, self._timeout()
        )[0]
        bench.ask("reserve", bytes=bench.output_bytes, count=4 * slots)
        arm.process.freeze()

    def slot(self, calls: int | None = None) -> tuple[float, float, float]:
        """A slot's middle call, all its calls and their CPU time, in ns; frozen before and after."""
        bench, extra = self.bench, int(self.options.kind == "cuda")
        arm = bench.arms[BASELINE]
        sets = bench.draw_timed((calls or self._batch) + extra)
        slot = bench.run(
            arm,
            sets,
            [bench.seed() for _ in sets],
            flushes=self._flushes,
            paced=self._paced,
            timeout=bench.build_timeout if calls else None,
        )
        if not arm.process.frozen:
            arm.process.freeze()
        bench.forget([slot])
        timed = slot.calls[extra:]
        wall, cpu = sum(call.ns for call in timed), sum(float(call.host) for call in timed)
        return float(median(call.ns for call in timed)), wall, cpu


def main(argv: list[str]) -> int:
    """The child that `check` and `watch` start: an entry as JSON in, one document out."""
    import orjson

    from trackside.suite.narrating import narrate

    entry = Entry.from_dict(orjson.loads(argv[0]))
    return narrate(lambda progress: measure_pace(entry, progress).to_dict())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
