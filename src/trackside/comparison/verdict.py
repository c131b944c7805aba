"""From quads to a verdict: intervals on three clocks, and the order in which answers outrank each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trackside.comparison.arms import BASELINE, CANDIDATE
from trackside.comparison.checks import Ledger
from trackside.comparison.measure import Measurement, Pair, Plan, Quad
from trackside.stats import quiet
from trackside.stats.intervals import Interval, at_confidence, balanced_interval
from trackside.stats.quads import pair_median
from trackside.stats.totals import contradicts, falls_short, total_ratio
from trackside.stats.verdict import PROOF, classify

__all__ = ["VERDICTS", "Quiet", "Reading", "conclude", "ratios", "read", "worst_of"]

VERDICTS = ("rejected", "not-comparable", "slower", "inconclusive", "equivalent", "faster")
"""From the least to the most favourable; a run over several shapes takes the first that occurs."""

_MAX_DROPPED = 0.40
_FISHER_ALPHA = 0.01
# So few drops of one arm cannot move a median, however they fall. Slots that take a 20th of the other arm's
# are disturbed more often than that share: a process that has just been woken is preempted more easily.
_FEW_DISTURBED = 0.1
# A worker's clock that claims more than twice what the judge's clock allows at most is not believed.
_BELIEVED_SHARE = 0.5
# It takes an interval at this to be rejected: at 95 %, noise alone would do for one honest claim in forty.
_CERTAIN = 0.999
_NOISE = "noise may be why: a quieter machine, a longer budget or a larger size would tell"
# Gains below this are left to the intervals.
_WORTH_ASKING = 0.05
# Times the baseline's memory from which the outputs' copies weigh on the judge's clock.
_STREWN = 1.25
# What a slot may take one arm longer to start on a GPU: seen with the graphs of torch.compile were 0.4 ms.
# And each fill before a call's own clock begins: with those graphs 2.2 µs, be there 126 in a slot or 336.
_SLOT_START_NS, _FILL_NS = 600e3, 3e3
# So many quads blur a pair's median as much as processes differ: beyond that, more of them say little more.
# Pairs that other work left with few quads count for less. The sum of all times weighs them alike.
_PROCESS_QUADS = 20


@dataclass(frozen=True)
class Reading:
    """What the clocks say, in log ratios baseline/candidate."""

    speed: Interval
    judge: Interval | None
    total: Interval
    pooled: float
    """As `total`, of the times of all pairs in one sum."""
    wall: Interval | None
    device: Interval | None
    lie_us: float
    """What a lying worker could hide in each call and still have the judge's clock say so much at least."""
    kept: int
    quads: int
    judge_most: float = -math.inf
    """The most that the judge's clock allows whatever the noise, in log ratio."""
    excuse: str = ""
    """What an honest candidate may spend on the judge's clock and not on its own: outputs that span far more
    memory than the baseline's, which the judge has to copy; the host's work, where calls are paced; or what
    a process takes on a GPU's host to go on after the other."""

    def longer(self, delta: float) -> float:
        """Times the budget after which the interval would reach half of delta to either side."""
        half = (self.speed.high - self.speed.low) / 2
        # Twice as narrow takes four times as long.
        return max(2.0, (2 * half / math.log1p(delta)) ** 2)


def read(measurement: Measurement, ledger: Ledger) -> Reading:
    """Intervals over the pairs' medians, once, after all pairs."""
    plan = measurement.plan
    modes = {"device": "plain" if plan.kind == "cpu" else "cold", "wall": "wall"}
    wanted = modes["device"] if plan.kind == "cpu" else modes[plan.metric]
    timed = [q for p in measurement.pairs for q in p.quads if q.mode == wanted]
    undisturbed = Quiet(timed) if plan.kind == "cpu" else None
    keep = {id(q) for q in (undisturbed.kept if undisturbed else timed)}
    speeds, hidden, shares, totals, weights = [], [], [], [], []
    sums: dict[str, list[float]] = {"A": [], "B": []}
    for pair in measurement.pairs:
        quads = [q for q in pair.quads if q.mode == wanted]
        kept = [q for q in quads if id(q) in keep] or quads
        speeds.append(pair_median([q.log_ratio for q in kept], [q.order for q in kept]))  # type: ignore[misc]
        base = [t for q in quads for t, letter in zip(q.totals, q.order, strict=True) if letter == "A"]
        cand = [t for q in quads for t, letter in zip(q.totals, q.order, strict=True) if letter == "B"]
        totals.append(math.log(total_ratio(base, cand)))
        sums["A"] += base
        sums["B"] += cand
        hidden.append(_hidden(kept, pair.idle.get(CANDIDATE, 0.0) - pair.idle.get(BASELINE, 0.0)))
        shares.append(math.exp(-speeds[-1]) + hidden[-1] / _median_of(kept, "A"))
        counted = max(1, sum(id(q) in keep for q in quads))
        weights.append(counted / (counted + _PROCESS_QUADS))
    others = (
        {name: _plain_interval(measurement.pairs, mode) for name, mode in modes.items()}
        if plan.kind == "cuda"
        else {"device": None, "wall": None}
    )
    first = [pair.first for pair in measurement.pairs]
    speed = balanced_interval(speeds, first, weights=weights)
    share = balanced_interval(shares, first, weights=weights)
    judge = _at_most(_as_ratio(share), speed)
    beyond = balanced_interval(hidden, first, weights=weights).mid
    if undisturbed:
        undisturbed.report(ledger, classify(speed, plan.delta) == "slower")
    return Reading(
        speed=speed,
        judge=judge,
        total=balanced_interval(totals, first),
        pooled=math.log(total_ratio(sums["A"], sums["B"])),
        wall=others["wall"],
        device=others["device"],
        lie_us=_median_of(timed, "B") * math.expm1(speed.mid - judge.low) / 1e3,
        kept=len(keep),
        quads=len(timed),
        judge_most=_as_ratio(at_confidence(share, _CERTAIN)).high,
        excuse=_paced(plan) or _strewn(measurement.output_bytes) or _starting(plan, beyond),
    )


def _strewn(spans: dict[str, int]) -> str:
    mine, theirs = spans.get(CANDIDATE, 0), spans.get(BASELINE, 0)
    if mine <= _STREWN * theirs:
        return ""
    return (
        f"its outputs are views over {mine:,} bytes, the baseline's take {theirs:,}: return contiguous copies"
    )


def _paced(plan: Plan) -> str:
    if not plan.paced:
        return ""
    return "calls wait for the device, and how long a host takes after that differs: a larger size would tell"


def _starting(plan: Plan, hidden_ns: float) -> str:
    calls = plan.batch + 1
    extra = hidden_ns * calls
    fills = plan.flushes * calls if plan.metric == "device" else 0
    if plan.kind == "cpu" or extra > _SLOT_START_NS + _FILL_NS * fills:
        return ""
    clearing = " and to clear the cache before each call" if fills else ""
    return (
        f"its slots take {extra / 1e3:.0f} µs longer than its calls say, and to start one{clearing} may take "
        "so much longer in one process than in the other: a larger size would tell"
    )


class Quiet:
    """Which quads to count: on a CPU those in which no slot was preempted much more than usual for its arm.

    Where so many would go that what is left is a choice, or where they fall on one arm, nothing is dropped:
    noise then widens the interval, and who waits where it would be slow has hidden nothing.
    """

    def __init__(self, quads: list[Quad], limit: float = 1.02) -> None:
        arms = np.array([list(q.order) for q in quads])
        wall = np.array([q.totals for q in quads])
        ratios = quiet.waiting(wall, np.array([q.cpu for q in quads]), arms)
        self._disturbed = quiet.disturbed_share(ratios, arms, limit)
        hits = quiet.arm_disturbances(ratios, arms, limit)
        lengths = [float(np.median(wall[arms == letter])) for letter in "AB"]
        odds = quiet.length_odds(hits[0] + hits[2], len(quads), *lengths)
        self._p = quiet.fisher_exact(*hits, odds=odds)
        # The arm that was hit more often than its length explains: only its drops can have been chosen.
        candidate = hits[0] * hits[3] < odds * hits[1] * hits[2]
        unevenly = self._p < _FISHER_ALPHA and hits[2 if candidate else 0] > _FEW_DISTURBED * len(quads)
        self._hit = (CANDIDATE if candidate else BASELINE) if unevenly else None
        believed = self._hit is None and self._disturbed <= _MAX_DROPPED
        mask = quiet.keep_quiet(ratios, arms, limit, _MAX_DROPPED)
        self.kept = [q for q, keep in zip(quads, mask, strict=True) if keep] if believed else quads

    def report(self, ledger: Ledger, slower: bool) -> None:
        """Say what was dropped, and refuse where a disturbed baseline may have made the candidate look good.

        Args:
            slower: whether the candidate was slower all the same.
        """
        share = f"{self._disturbed:.0%} of quads were disturbed by other work"
        if self._hit is not None:
            text = (
                f"{share}, and disturbed slots fall unevenly, on the {self._hit} (Fisher p = {self._p:.4f})"
            )
            if self._hit == BASELINE and not slower:
                ledger.failed("machine-quiet", f"{text}; run again on a quieter machine")
            else:
                ledger.warned("machine-quiet", f"{text}: all of them count")
        elif self._disturbed > _MAX_DROPPED:
            ledger.warned(
                "machine-quiet",
                f"{share}, more than the {_MAX_DROPPED:.0%} that may be dropped: all of them count",
            )
        else:
            ledger.passed("machine-quiet", f"{self._disturbed:.0%} of quads dropped as disturbed")


def _hidden(quads: list[Quad], idle: float) -> float:
    """What the judge saw of a candidate's call and its own clock leaves out, in ns.

    That is how much longer the judge saw the candidate take than the baseline, beyond what their own clocks
    say and beyond the `idle` difference of slots in which nothing is called. A difference and no ratio of
    the judge's times: what both spend around a call is more than many a call takes.
    """
    differences = []
    for q in quads:
        sign = 1 if q.order == "ABBA" else -1
        j, t = q.judge_ns, q.ns
        differences.append(sign * ((j[1] + j[2] - j[0] - j[3]) - (t[1] + t[2] - t[0] - t[3])) / 2)
    return pair_median(differences, [q.order for q in quads]) - idle  # type: ignore[misc]


def _as_ratio(share: Interval) -> Interval:
    """Log ratios baseline/candidate from an interval of the candidate's time in the baseline's.

    Pairs are averaged as times: what the judge's clock misses by is a time, and where that is as long as the
    call, logarithms would make one pair's miss outweigh all others.
    """

    def log_ratio(share: float) -> float:
        return -math.log(share) if share > 0 else math.inf

    return replace(share, mid=log_ratio(share.mid), low=log_ratio(share.high), high=log_ratio(share.low))


def _median_of(quads: list[Quad], arm: str) -> float:
    return float(
        np.median([t for q in quads for t, letter in zip(q.ns, q.order, strict=True) if letter == arm])
    )


def _at_most(judge: Interval, speed: Interval) -> Interval:
    """The judge's interval where it bounds the other: where it says more, that is its noise."""
    return replace(
        judge,
        mid=min(judge.mid, speed.mid),
        low=min(judge.low, speed.low),
        high=min(judge.high, speed.high),
    )


def _plain_interval(pairs: list[Pair], mode: str) -> Interval | None:
    values, first = [], []
    for pair in pairs:
        quads = [q for q in pair.quads if q.mode == mode]
        if quads:
            values.append(pair_median([q.log_ratio for q in quads], [q.order for q in quads]))  # type: ignore[misc]
            first.append(pair.first)
    return balanced_interval(values, first) if len(values) > 1 else None


def conclude(reading: Reading, delta: float, ledger: Ledger) -> tuple[str, list[str]]:
    """The verdict of the clocks, given that nothing was rejected."""
    verdict = str(classify(reading.speed, delta))
    reasons: list[str] = []
    if verdict != "faster":
        ledger.passed("clocks-agree", "no speedup is claimed")
        ledger.passed("total-time-agrees", "no speedup is claimed")
        if verdict == "inconclusive":
            held = reading.speed.low <= 0 <= reading.speed.high
            why = f"holds both no change and a change beyond ±{delta:.1%}"
            if not held:
                why = f"excludes no change, but at {PROOF:.0%}, which a verdict needs, it does not"
            reasons.append(
                f"the interval {_span(reading.speed)} {why}; "
                f"about {reading.longer(delta):.0f} times the budget would narrow it to ±{delta / 2:.1%}"
            )
        return verdict, reasons
    judge = reading.judge
    assert judge is not None
    claimed, believed = math.exp(reading.speed.low) - 1, math.exp(judge.high) - 1
    most = math.exp(max(judge.high, reading.judge_most)) - 1
    doubted = believed < _BELIEVED_SHARE * claimed and claimed > _WORTH_ASKING
    excuse = reading.excuse or (_NOISE if most >= _BELIEVED_SHARE * claimed else "")
    if doubted and excuse:
        # What is on the judge's clock and not on the candidate's may be that: no lie, and no proof either.
        reasons.append(f"the judge's clock cannot confirm the speedup: {_span(judge)}; {excuse}")
        ledger.warned("clocks-agree", reasons[-1])
        verdict = "inconclusive"
    elif doubted:
        ledger.failed(
            "clocks-agree",
            f"the candidate's own clock says {_span(reading.speed)}, the judge's clock, "
            f"which no candidate can reach, says {_span(judge)}",
        )
    elif judge.low <= 0:
        reasons.append(
            f"the judge's clock cannot confirm the speedup: {_span(judge)}; "
            "a longer budget or a larger size would"
        )
        ledger.warned("clocks-agree", reasons[-1])
        verdict = "inconclusive"
    elif judge.high < reading.speed.low:
        ledger.warned("clocks-agree", f"the judge's clock, which no candidate can reach, says {_span(judge)}")
    else:
        ledger.passed("clocks-agree", f"the judge's clock says {_span(judge)}")
    if contradicts(reading.speed, reading.total) or falls_short(reading.speed, reading.pooled):
        ledger.failed(
            "total-time-agrees",
            f"the median says {_span(reading.speed)}, the sum of all times {_span(reading.total)}, over all "
            f"pairs together {math.exp(reading.pooled):.3f}x: the time went into rare slow calls",
        )
    else:
        ledger.passed("total-time-agrees", f"the sum of all times says {_span(reading.total)}")
    return verdict, reasons


def _span(interval: Interval) -> str:
    return f"{math.exp(interval.mid):.3f}x [{math.exp(interval.low):.3f}, {math.exp(interval.high):.3f}]"


def worst_of(verdicts: list[str]) -> str:
    """One word for several shapes: the least favourable."""
    return min(verdicts, key=VERDICTS.index)


def ratios(interval: Interval) -> dict[str, Any]:
    """An interval of log ratios as plain ratios."""
    return {"ratio": math.exp(interval.mid), "low": math.exp(interval.low), "high": math.exp(interval.high)}
