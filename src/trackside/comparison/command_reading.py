"""What the clock says about two commands: the undisturbed quads, and an interval over the blocks' medians."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from trackside.comparison.checks import Ledger
from trackside.comparison.measure import Pair, Quad
from trackside.comparison.verdict import Quiet, Reading
from trackside.stats.intervals import t_interval
from trackside.stats.quads import pair_median
from trackside.stats.spread import median
from trackside.stats.totals import total_ratio
from trackside.stats.verdict import classify

__all__ = ["read_commands"]

# Wall over CPU time tells a disturbed run only where a process computes in one thread and seldom waits.
_ONE_THREAD: Final = (0.9, 1.25)
# Start-up and page faults make a process's ratio vary more than a call's, which has 1.02.
_QUIET_LIMIT: Final = 1.05


def read_commands(pairs: list[Pair], delta: float, ledger: Ledger) -> Reading:
    """The interval, once, after all blocks. There is one clock, the judge's own, so no lie to bound."""
    quads = [quad for pair in pairs for quad in pair.quads]
    quiet = Quiet(quads, _QUIET_LIMIT) if _one_thread(quads) else None
    keep = {id(quad) for quad in (quiet.kept if quiet else quads)}
    speeds, totals = [], []
    all_times: dict[str, list[float]] = {"A": [], "B": []}
    for pair in pairs:
        kept = [quad for quad in pair.quads if id(quad) in keep] or pair.quads
        speeds.append(pair_median([q.log_ratio for q in kept], [q.order for q in kept]))  # type: ignore[misc]
        times = {"A": list[float](), "B": list[float]()}
        for quad in pair.quads:
            for letter, ns in zip(quad.order, quad.totals, strict=True):
                times[letter].append(ns)
        totals.append(math.log(total_ratio(times["A"], times["B"])))
        for letter in "AB":
            all_times[letter] += times[letter]
    speed = t_interval(speeds)
    if quiet:
        quiet.report(ledger, classify(speed, delta) == "slower")
    else:
        ledger.passed(
            "machine-quiet",
            "no quad dropped: the commands wait or use several threads, so CPU time shows no disturbance",
        )
    return Reading(
        speed=speed,
        judge=speed,
        total=t_interval(totals),
        pooled=math.log(total_ratio(*all_times.values())),
        wall=speed,
        device=None,
        lie_us=0.0,
        kept=len(keep),
        quads=len(quads),
    )


def _one_thread(quads: list[Quad]) -> bool:
    """Whether CPU time can show what was disturbed."""
    wall, cpu = np.array([quad.totals for quad in quads]), np.array([quad.cpu for quad in quads])
    arms = np.array([list(quad.order) for quad in quads])
    middles = [median((wall / cpu)[arms == letter]) for letter in "AB"]
    return all(_ONE_THREAD[0] <= middle <= _ONE_THREAD[1] for middle in middles)
