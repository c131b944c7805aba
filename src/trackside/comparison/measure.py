"""The timed part: fresh worker pairs, randomised quads, calls compared with the baseline's and the oracle."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from trackside.comparison.arms import BASELINE, CANDIDATE, Call, Slot
from trackside.comparison.audit import (
    check_environment,
    check_inputs,
    check_signals,
    check_state,
    match_parameters,
    watch_state,
)
from trackside.comparison.baseline import learn
from trackside.comparison.bench import Bench
from trackside.comparison.outputs import check_call, suspicious
from trackside.comparison.probing import spot_check
from trackside.comparison.study import Study
from trackside.stats.intervals import RunningSignSequence
from trackside.stats.quads import quad_log_ratio
from trackside.stats.spread import quads_for_half_width, robust_sigma

__all__ = [
    "MAX_FLUSHES",
    "HostTime",
    "Measurement",
    "Pair",
    "Plan",
    "Quad",
    "measure",
    "odd_freezes",
    "plan_batch",
    "plan_flushes",
    "used_beside",
]

# Slots as short as the clocks allow, since drift between slots is what quads cannot cancel. On a GPU it is
# the judge's clock that decides: a slot's hand-over varies by some 100 µs, which more calls share. Half as
# long, it could not tell whether a layernorm of 97 µs had become a third faster.
_SLOT_NS = {"cpu": 10e6, "cuda": 16e6}
# So many calls at least on a GPU, as long as the slot does not become longer than this.
_LEAST_BATCH, _LONG_SLOT_NS = {"cpu": 1, "cuda": 16}, 32e6
_MAX_BATCH = {"cpu": 32, "cuda": 96}
_FAR_SLOWER = 2.0
# Shared memory of one arm; on a GPU an eighth of what is free at most: there are two, with private copies.
_ARENA_BYTES, _ARENA_SHARE = {"cpu": 192 << 20, "cuda": 16 << 30}, 8
# A pair needs some quads for its median and for an idea of the spread, which has heavy tails on a CPU, and
# on the judge's clock.
_MIN_QUADS = {"cpu": 20, "cuda": 16}
_MAX_QUADS = 200
# So many, even if a pair takes more than its share of the time for it: up to so many times its share.
_FEWEST_QUADS, _MOST_SHARE, _LEAST_SHARE = 6, 1.5, 0.5
# An interval over fewer is wide whatever they say.
_LEAST_PAIRS = 6
# Warm until the last three calls of each arm bring no new best by 3 %, within a fifth of the pair's time.
_WARM_SLOTS, _STILL_FALLING, _WARM_SHARE = 3, 0.97, 0.2
# Waking up and stopping again takes microseconds; more than this is work. A helper process that an arm keeps
# (a compile worker, a resource tracker) sleeps.
_FROZEN_NS, _FREEZING_NS, _STRANGER_SHARE = 2_000_000, 20_000, 0.05
# Freezes of a whole comparison that may be anything: in 2 of 31 on an H200 identical code was charged with
# 20 ms, for a cause not found. Two quads of all move no verdict.
_ODD_FREEZES = 2
_WATCH_NS = 200_000_000
# Slots without calls, of each arm in each pair.
_IDLE_SLOTS = 6
# After a quad, how often what only the audit saw so far is looked at again, in the timed process.
_SPOT_CHANCE = 1 / 30
# Time for comparing outputs with the baseline's, and for the oracle, as shares of the timed slots' time.
_SCREEN_SHARE, _ORACLE_SHARE = 0.3, 0.2
# Waiting for a device that has nothing to do takes some 5 µs. Calls of a pair that are looked at for it.
_LATE_NS, _LATE_CALLS = 20_000.0, 4
# Timed calls of an arm whose launches may show before its device time is called its host's too.
_EXPOSED_SHARE = 0.1
# One 256 MB fill takes about 80 µs on an H200 and hides that much enqueueing.
_FLUSH_NS = 80e3
MAX_FLUSHES = 24
# Seen on a virtual machine with an H200: launches take up to twice as long as some seconds before.
_SLOWER_HOST = 2.2
# Every so many device quads, one that times the call from the host, hot.
_WALL_EVERY = 3

Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Plan:
    """What was fixed before the first timed call."""

    device: str
    pairs: int
    batch: int
    flushes: int
    delta: float
    metric: str
    seconds: float
    host_bound: bool
    paced: bool = False
    """On a GPU: whether calls wait for each other, since one arm waits for the device anyway, or keeps it
    waiting. What the worker does around a call would overlap with the other arm's calls alone."""

    @property
    def kind(self) -> str:
        return "cpu" if self.device == "cpu" else "cuda"


@dataclass
class Quad:
    """Four slots, ABBA or BAAB."""

    order: str
    mode: str
    ns: list[float]
    totals: list[float]
    judge_ns: list[float]
    host: list[float]
    cpu: list[float]
    """CPU time of each slot's calls on a CPU; on a GPU the host's share of them."""
    began: int
    ended: int

    @cached_property
    def log_ratio(self) -> float:
        return quad_log_ratio(self.ns, self.order)  # type: ignore[arg-type]

    def to_record(self) -> dict[str, Any]:
        return {
            "order": self.order,
            "mode": self.mode,
            "ns": [round(x, 1) for x in self.ns],
            "judge_ns": [round(x) for x in self.judge_ns],
            "host": [round(x) for x in self.host],
            "cpu": [round(x) for x in self.cpu],
            "totals": [round(x, 1) for x in self.totals],
        }


@dataclass
class Pair:
    """One fresh pair of workers."""

    index: int
    quads: list[Quad] = field(default_factory=list)
    first: str = BASELINE
    """The arm that started first, and so was given memory first."""
    peaks: dict[str, dict[str, int | None]] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    """By arm, what a slot takes on the judge's clock without its calls, in ns for each; only with state."""


@dataclass
class Measurement:
    """All pairs, and what the candidate's calls looked like one by one."""

    plan: Plan
    pairs: list[Pair] = field(default_factory=list)
    samples: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """(arm, series) -> times of single calls in ns; series are `device`, `hot` and `wall`."""
    calls: int = 0
    strangers: dict[int, int] = field(default_factory=dict)
    """CPU time of processes that workers started, when last looked at."""
    ended: int = 0
    """CPU time of those that had ended, at that look."""
    watched_at: int = 0
    odd_freezes: dict[str, int] = field(default_factory=dict)
    """By arm, freezes of earlier pairs in which a process ran and nobody knows why."""
    output_bytes: dict[str, int] = field(default_factory=dict)
    """By arm, the memory that a call's outputs span."""
    late_ns: dict[str, list[int]] = field(default_factory=dict)
    """By arm, how long the device went on after paced calls."""
    waited: dict[str, list[int]] = field(default_factory=dict)
    """By arm, 1 for each timed call on a GPU that returned when the device was past the flushes before it."""
    slot_seconds: float = 0.0
    oracle_seconds: float = 0.0

    @property
    def host_bound(self) -> bool:
        """Whether launches were not hidden: an arm's device time is then also its host's."""
        exposed = any(sum(seen) > _EXPOSED_SHARE * len(seen) for seen in self.waited.values())
        return self.plan.host_bound or (exposed and not self.plan.paced)


def plan_batch(
    base_ns: float, cand_ns: float, call_bytes: int, kind: str, flushes: int, free: int | None
) -> int:
    """How many calls a slot holds, each with that many bytes of inputs and outputs.

    The baseline's time decides, unless the candidate takes far longer: its slots must not eat up the budget.
    """
    call_ns = cand_ns if cand_ns > _FAR_SLOWER * base_ns else base_ns
    per_call = max(call_ns, 1e3) + (flushes * _FLUSH_NS if kind == "cuda" else 0)
    wanted = max(round(_SLOT_NS[kind] / per_call), min(_LEAST_BATCH[kind], int(_LONG_SLOT_NS / per_call)))
    most = min(_ARENA_BYTES[kind], free // _ARENA_SHARE) if free is not None else _ARENA_BYTES[kind]
    # On a GPU the first call, which is not timed, has a slot too.
    room = most // max(1, call_bytes) - (kind == "cuda")
    return int(max(1, min(wanted, _MAX_BATCH[kind], room)))


@dataclass(frozen=True)
class HostTime:
    """What a call takes an arm's host and its device, in ns."""

    enqueue_ns: float
    """With what the worker does around it; with waiting for the device, where the call does."""
    run_ns: float
    waits: bool


def plan_flushes(arms: Sequence[HostTime]) -> tuple[int, bool]:
    """Flushes that outlast the enqueueing of a call in every arm, and whether even the most would not.

    While one call runs, the next is enqueued: a candidate that takes a tenth of the baseline's time hides a
    tenth of it. Where one arm waits, calls are paced and hide nothing behind each other; what such an arm
    enqueues is what is left of its host's time without its call's own.
    """
    flushes = math.ceil(_exposed(arms, _SLOWER_HOST) / _FLUSH_NS)
    return max(1, min(flushes, MAX_FLUSHES)), math.ceil(1.4 * _exposed(arms) / _FLUSH_NS) > MAX_FLUSHES


def _exposed(arms: Sequence[HostTime], slower: float = 1.0) -> float:
    """What an arm's call leaves of the time to enqueue the next, on a host so many times as slow as seen."""
    if any(arm.waits for arm in arms):
        return max(slower * (arm.enqueue_ns - (arm.run_ns if arm.waits else 0)) for arm in arms)
    return max(slower * arm.enqueue_ns - arm.run_ns for arm in arms)


def measure(
    bench: Bench,
    plan: Plan,
    study: Study,
    files: dict[str, Path],
    format: str,
    timeout: float,
    state_file: Path | None,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> Measurement:
    """Run all pairs. Time alone decides how many there are, and the spread how many quads each gets."""
    result = Measurement(plan)
    running = RunningSignSequence()
    began, looped = clock(), 0.0
    # A spot check holds two calls at once.
    calls = plan.batch + (plan.kind == "cuda")
    sizes = max(2, calls)
    timed = {"mode": _verdict_mode(plan), "flushes": plan.flushes, "paced": plan.paced}

    def spot() -> None:
        spot_check(bench, study, calls, plan.pairs, plan.seconds / plan.pairs, **timed)

    firsts = _start_orders(plan.pairs, bench.rng)
    while len(result.pairs) < plan.pairs:
        index = len(result.pairs)
        if index == 1:
            # Fewer where the least a pair takes is more than its share: before any ratio has been looked at.
            spare = looped * (1 - _FEWEST_QUADS / len(result.pairs[0].quads))
            pairs = _pairs_in_time(plan, clock() - began - spare)
            plan = result.plan = replace(plan, pairs=pairs)
            firsts = [firsts[0], *_start_orders(plan.pairs, bench.rng, begun=firsts[0])]
        pair = Pair(index, first=firsts[index][0])
        seed = bench.seed()
        save = str(state_file) if state_file is not None else None
        digest = bench.ask("setup", seed=seed, save=save)["digest"]
        study.facts["digest"] = digest
        in_order = {name: files[name] for name in firsts[index]}
        bench.start_all(in_order, format, index + 1, seed, sizes, timeout)
        match_parameters(bench, bench.arms[CANDIDATE], study, save)
        bench.ledger.settle()
        watch_state(bench, study)
        bench.ask("reserve", bytes=bench.output_bytes, count=4 * sizes)
        # The other way round: who started second comes first when the first outputs are given memory.
        _warm(bench, plan, firsts[index][::-1], clock)
        pair.idle = _idle(bench, plan, firsts[index]) if bench.contract["restore"] else {}
        result.strangers, result.watched_at = bench.strangers(), time.monotonic_ns()
        result.ended = bench.fleet.ended
        warm = clock()
        while True:
            mode = _mode(plan, len(pair.quads))
            quad = _run_quad(bench, plan, study, mode, result)
            pair.quads.append(quad)
            wanted = _quads_per_pair([*result.pairs, pair], plan)
            if quad.mode == _verdict_mode(plan):
                low, high = running.add(quad.log_ratio)
                progress(
                    {
                        "phase": "quads",
                        "pair": index + 1,
                        "pairs": plan.pairs,
                        "quads": running.n,
                        "low": math.exp(low) if math.isfinite(low) else None,
                        "high": math.exp(high) if math.isfinite(high) else None,
                    }
                )
            counted = sum(q.mode == _verdict_mode(plan) for q in pair.quads)
            if bench.rng.random() < _SPOT_CHANCE:
                spot()
            if _is_over(plan, index, clock() - began, clock() - warm, counted, wanted):
                break
        looped = clock() - warm
        _check_frozen(bench, result, now=True)
        spot()
        _look_for_late_work(bench, plan, result)
        _close_pair(bench, study, pair)
        for arm in bench.arms.values():
            odd = odd_freezes(arm.process.ran_frozen)
            result.odd_freezes[arm.name] = result.odd_freezes.get(arm.name, 0) + odd
        result.pairs.append(pair)
        _check_late(bench, result)
    return result


def _is_over(plan: Plan, index: int, seconds: float, timing: float, counted: int, wanted: int) -> bool:
    """Whether a pair has the quads that it wants, or that its share of the time allows.

    Where time is too short for the fewest, all pairs get less: one that had none left would count for little.
    One whose start took its time has half of a pair's share for quads all the same.

    Args:
        seconds: since the first pair began.
        timing: since the pair was warm.
    """
    share = plan.seconds * (index + 1) / plan.pairs
    enough = counted >= _FEWEST_QUADS and (seconds >= share or counted >= wanted)
    own = timing >= _LEAST_SHARE * plan.seconds / plan.pairs
    return enough or (own and seconds >= _MOST_SHARE * share)


def _pairs_in_time(plan: Plan, seconds: float) -> int:
    """How many pairs there is time for when each takes so many seconds; never fewer than the least."""
    return max(min(_LEAST_PAIRS, plan.pairs), min(plan.pairs, int(plan.seconds / seconds)))


def _start_orders(
    pairs: int, rng: random.Random, begun: tuple[str, str] | None = None
) -> list[tuple[str, str]]:
    """Which arm starts first, in half of the pairs each, shuffled; without the first where that has `begun`.

    Who comes second is given other memory: on an H200 that made 0.2 % of a GEMM and 0.7 % of a 2 GB copy.
    """
    first = begun or rng.choice([(BASELINE, CANDIDATE), (CANDIDATE, BASELINE)])
    orders = [first if i % 2 == 0 else first[::-1] for i in range(0 if begun is None else 1, pairs)]
    rng.shuffle(orders)
    return orders


def _mode(plan: Plan, done: int) -> str:
    if plan.kind == "cpu":
        return "plain"
    every = done % (_WALL_EVERY + 1) == _WALL_EVERY
    if plan.metric == "wall":
        return "cold" if every else "wall"
    return "wall" if every else "cold"


def _verdict_mode(plan: Plan) -> str:
    return "plain" if plan.kind == "cpu" else ("wall" if plan.metric == "wall" else "cold")


def _quads_per_pair(pairs: list[Pair], plan: Plan) -> int:
    """Quads that make the interval half a delta wide to either side, by the spread inside the pairs so far.

    Blind to the labels: the spread does not know which arm is the faster.
    """
    inside: list[float] = []
    for pair in pairs:
        ratios = [q.log_ratio for q in pair.quads if q.mode == _verdict_mode(plan)]
        middle = _middle(sorted(ratios)) if ratios else 0.0
        inside += [r - middle for r in ratios]
    least = _MIN_QUADS[plan.kind]
    if len(inside) < least:
        return least
    wanted = quads_for_half_width(robust_sigma(inside), plan.delta / 2, plan.pairs)
    return max(least, min(_MAX_QUADS, wanted))


def _warm(bench: Bench, plan: Plan, order: tuple[str, ...], clock: Callable[[], float]) -> None:
    """Run both arms in turn until neither gets faster: a fresh process pays for its memory for many calls."""
    best: dict[str, list[float]] = {name: [] for name in order}
    deadline = clock() + _WARM_SHARE * plan.seconds / plan.pairs
    while True:
        for name, seen in best.items():
            arm = bench.arms[name]
            # A first call may load kernels or compile from the cache, so it has the build's time.
            slot = bench.run(
                arm, bench.draw_timed(), [bench.seed()], flushes=plan.flushes, timeout=bench.build_timeout
            )
            arm.process.freeze()
            bench.forget([slot])
            seen.append(slot.calls[0].ns)
        turns = len(best[BASELINE])
        settled = all(
            min(seen[-_WARM_SLOTS:]) > _STILL_FALLING * min(seen[:-_WARM_SLOTS] or [0])
            for seen in best.values()
        )
        if turns > _WARM_SLOTS and (settled or clock() > deadline):
            return


def _idle(bench: Bench, plan: Plan, order: tuple[str, ...]) -> dict[str, float]:
    """What each arm takes to restore its state: one may keep packed weights there, another nothing."""
    count = plan.batch + (plan.kind == "cuda")
    seen: dict[str, list[float]] = {name: [] for name in order}
    for turn in range(_IDLE_SLOTS):
        for name in order if turn % 2 else order[::-1]:
            slot_ns = bench.run_idle(bench.arms[name], count, plan.flushes, plan.paced)
            seen[name].append(slot_ns / count)
    return {name: _middle(sorted(times)) for name, times in seen.items()}


def _run_quad(bench: Bench, plan: Plan, study: Study, mode: str, result: Measurement) -> Quad:
    # On a GPU the first call after a switch of process is run and checked, but not timed.
    extra = 1 if plan.kind == "cuda" else 0
    groups = [bench.draw_timed(plan.batch + extra) for _ in range(2)]
    seeds = [[bench.seed() for _ in group] for group in groups]
    order = "ABBA" if bench.rng.random() < 0.5 else "BAAB"
    seen = {BASELINE: 0, CANDIDATE: 0}
    slots: list[tuple[str, int, Slot]] = []
    began = time.monotonic_ns()
    for letter in order:
        name = BASELINE if letter == "A" else CANDIDATE
        arm, group = bench.arms[name], seen[name]
        seen[name] += 1
        paced = plan.paced and mode == "cold"
        slot = bench.run(arm, groups[group], seeds[group], mode=mode, flushes=plan.flushes, paced=paced)
        if not arm.process.frozen:
            bench.freeze(arm)
        slots.append((name, group, slot))
    ended = time.monotonic_ns()
    quad = Quad(order, mode, [], [], [], [], [], began, ended)
    for name, _group, slot in slots:
        result.output_bytes[name] = max(slot.output_bytes, result.output_bytes.get(name, 0))
        result.late_ns.setdefault(name, []).extend(slot.late_ns[extra:])
        result.waited.setdefault(name, []).extend(slot.waited[extra:])
        calls = slot.calls[extra:]
        times = sorted(float(c.host) for c in calls) if mode == "wall" else sorted(c.ns for c in calls)
        quad.ns.append(_middle(times))
        quad.totals.append(sum(times))
        quad.judge_ns.append(slot.judge_ns / len(slot.calls))
        quad.host.append(_middle(sorted(float(c.host) for c in calls)))
        quad.cpu.append(float(sum(c.host for c in calls)))
        if mode == "wall":
            result.samples.setdefault((name, "wall"), []).extend(float(c.host) for c in calls)
            result.samples.setdefault((name, "hot"), []).extend(c.ns for c in calls)
        else:
            result.samples.setdefault((name, "device"), []).extend(c.ns for c in calls)
    _check_frozen(bench, result)
    result.calls += sum(len(s.calls) for n, _, s in slots if n == CANDIDATE)
    _check_quad(bench, study, slots, (ended - began) / 1e9, result)
    return quad


def _check_quad(
    bench: Bench, study: Study, slots: list[tuple[str, int, Slot]], seconds: float, result: Measurement
) -> None:
    """Compare calls with the baseline's on the same inputs, in secret order, and some with the oracle."""
    table = {(name, group): slot for name, group, slot in slots}
    pairs = [
        (c, b)
        for g in (0, 1)
        for c, b in zip(table[CANDIDATE, g].calls, table[BASELINE, g].calls, strict=True)
    ]
    bench.rng.shuffle(pairs)
    result.slot_seconds += seconds
    began = time.monotonic()
    for call, standard in pairs:
        # The oracle takes its turn whenever its share has grown enough; nobody can tell when that is.
        due = result.oracle_seconds <= _ORACLE_SHARE * result.slot_seconds
        if not due and time.monotonic() > began + _SCREEN_SHARE * seconds:
            break
        if due or study.random or suspicious(bench, study, call, standard):
            result.oracle_seconds += _consult_oracle(bench, study, call, standard)
    if bench.device == "cpu":
        # Both arms' last runs left their inputs where they were given to them, one place for each call.
        last = table[CANDIDATE, 1].calls
        place = bench.rng.randrange(len(last))
        check_inputs(bench, bench.arms[CANDIDATE], study, place, last[place], window=bench.rng.random())
    for name, _, slot in slots:
        if name == CANDIDATE and slot.hooks:
            bench.ledger.failed("harness-intact", f"the candidate left {', '.join(slot.hooks)} installed")
    bench.forget([slot for _, _, slot in slots])


def _consult_oracle(bench: Bench, study: Study, call: Call, standard: Call) -> float:
    """Check a call against the oracle; returns the seconds that took."""
    began = time.monotonic()
    learn(bench, study, standard)
    check_call(bench, study, call, standard, label=f"timed call {call.id}")
    return time.monotonic() - began


def _look_for_late_work(bench: Bench, plan: Plan, result: Measurement) -> None:
    """A few calls that wait for the device, where timed ones do not: what is left behind would show."""
    if plan.kind == "cpu" or plan.paced:
        return
    sets = bench.draw_timed(min(1 + _LATE_CALLS, plan.batch + 1))
    seeds, slots = [bench.seed() for _ in sets], []
    for arm in (bench.arms[BASELINE], bench.arms[CANDIDATE]):
        slots.append(bench.run(arm, sets, seeds, flushes=plan.flushes, paced=True))
        arm.process.freeze()
        result.late_ns.setdefault(arm.name, []).extend(slots[-1].late_ns[1:])
    bench.forget(slots)


def _check_late(bench: Bench, result: Measurement) -> None:
    """Whether calls leave work behind: the device must be done when the event that ends a call is."""
    late = {name: _middle(sorted(float(t) for t in times)) for name, times in result.late_ns.items() if times}
    if late and late[CANDIDATE] > _LATE_NS + late[BASELINE]:
        bench.ledger.failed(
            "late-writes",
            f"after the candidate's calls the device goes on for {late[CANDIDATE] / 1e3:.0f} µs, after the "
            f"baseline's for {late[BASELINE] / 1e3:.0f} µs: work is left on another stream",
        )


def _close_pair(bench: Bench, study: Study, pair: Pair) -> None:
    """What is read once per pair, after its last quad: inputs, state, flags, memory."""
    base, cand = bench.arms[BASELINE], bench.arms[CANDIDATE]
    last, seeds = bench.draw_timed(), [bench.seed()]
    slots = [bench.run(arm, last, seeds) for arm in (base, cand)]
    for arm in (base, cand):
        bench.tell(arm, "inputs_back", 60, slot=0)
    check_inputs(bench, cand, study, 0, slots[1].calls[0])
    check_state(bench, study)
    bench.forget(slots)
    check_environment(bench, cand, study)
    for arm in (base, cand):
        facts = bench.tell(arm, "facts", 60)
        pair.peaks[arm.name] = {"host": arm.process.peak_rss(), "device": facts["device_peak"] or None}
    bench.ledger.settle()


def _check_frozen(bench: Bench, result: Measurement, now: bool = False) -> None:
    """While an arm is frozen nothing of it may run: not itself, woken by a helper, nor what it started."""
    check_signals(bench, bench.arms[CANDIDATE])
    for arm in bench.arms.values():
        ran = arm.process.ran_frozen
        if result.odd_freezes.get(arm.name, 0) + odd_freezes(ran) > _ODD_FREEZES:
            often = sum(ns > _FREEZING_NS for ns in ran)
            bench.ledger.failed(
                "no-leftovers",
                f"the {arm.name} used {sum(ran) / 1e6:.0f} ms of CPU while it was frozen, in {often} of "
                f"{len(ran)} times, {max(ran) / 1e6:.1f} ms at most: something wakes it in the other arm's "
                "slots",
            )
    window_ns = time.monotonic_ns() - result.watched_at
    # Now and then: reading all of /proc takes milliseconds.
    if window_ns < _WATCH_NS and not now:
        return
    result.watched_at, after = time.monotonic_ns(), bench.strangers()
    busy = used_beside(result.strangers, after, bench.fleet.ended - result.ended)
    result.strangers, result.ended = after, bench.fleet.ended
    if bench.fleet.orphans:
        bench.ledger.failed(
            "no-leftovers",
            f"process {bench.fleet.orphans[0]} left the worker that started it, and cannot be frozen with it",
        )
    elif busy > max(_FROZEN_NS, _STRANGER_SHARE * window_ns):
        bench.ledger.failed(
            "no-leftovers",
            f"processes that a worker started ({len(after)} of them still there) used {busy / 1e6:.0f} ms of "
            f"CPU within {window_ns / 1e6:.0f} ms",
        )
    else:
        bench.ledger.passed("no-leftovers", "nothing of a frozen arm ran")


def used_beside(before: dict[int, int], after: dict[int, int], ended: int) -> int:
    """CPU time, in ns, of all processes that workers started, those that have `ended` since among them.

    All together: a crowd of helpers could share the work, and each be gone when it is looked at.
    """
    return max(ended, 0) + sum(ns - before.get(pid, 0) for pid, ns in after.items())


def odd_freezes(ran: Sequence[int]) -> int:
    """Without how many of its freezes a process used no more CPU time, in ns, than stopping takes."""
    spare, odd = sum(ran) - _FROZEN_NS - len(ran) * _FREEZING_NS, 0
    for ns in sorted(ran, reverse=True):
        if spare <= 0:
            break
        spare, odd = spare - ns, odd + 1
    return odd


def _middle(values: list[float]) -> float:
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
