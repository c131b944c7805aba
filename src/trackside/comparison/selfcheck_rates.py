"""From the runs of selfcheck to error rates: counts with exact intervals, reciprocity, slope, findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from trackside.records.selfcheck import Linearity, Rate, SelfcheckRun
from trackside.stats.intervals import clopper_pearson
from trackside.stats.special import t_quantile

__all__ = ["find", "linearity", "medians", "rates"]

ALL = "all"

# The interval that decides has 95 % confidence, so this many false verdicts are its price.
NOMINAL_FALSE = 0.05
# A slowdown of twice the threshold, or more, should be found at least this often.
NOMINAL_FOUND = 0.90
SLOPE_MARGIN = 0.05


def rates(runs: Sequence[SelfcheckRun]) -> list[Rate]:
    """All rates, per workload and over all workloads where there are several."""
    found: list[Rate] = []
    for experiment, whats in (("aa", ("false", "refused")), ("injected", ("found", "wrong", "refused"))):
        mine = [r for r in runs if r.experiment == experiment]
        for what in whats:
            for workload, part in _by_workload(mine):
                # A comparison that failed found nothing, but said nothing false either.
                judged = part if what == "found" else [run for run in part if run.verdict is not None]
                if judged:
                    hits = sum(_counts(what, run) for run in judged)
                    found.append(_rate(experiment, workload, what, hits, part, len(judged)))
    swaps = [r for r in runs if r.experiment == "swap"]
    for workload, part in _by_workload(swaps):
        pairs = _pairs(part)
        hits = sum(reciprocal(*pair) for pair in pairs)
        if pairs:
            found.append(_rate("swap", workload, "reciprocal", hits, part, len(pairs)))
    return found


def _counts(what: str, run: SelfcheckRun) -> bool:
    slower, faster = ("faster", "slower") if run.swapped else ("slower", "faster")
    if what == "false":
        return run.verdict in ("faster", "slower")
    if what == "refused":
        # Honest code by construction: no reason to refuse it is a good one.
        return run.verdict in ("rejected", "not-comparable")
    if what == "found":
        return run.verdict == slower
    return run.verdict in (faster, "equivalent")


def _rate(experiment: str, workload: str, what: str, k: int, runs: Iterable[SelfcheckRun], n: int) -> Rate:
    interval = clopper_pearson(k, n)
    verdicts = Counter(run.verdict or "error" for run in runs)
    return Rate.model_validate(
        {
            "experiment": experiment,
            "workload": workload,
            "what": what,
            "k": k,
            "n": n,
            "low": interval.low,
            "high": interval.high,
            "confidence": interval.confidence,
            "verdicts": dict(verdicts),
        }
    )


def _by_workload(runs: Sequence[SelfcheckRun]) -> list[tuple[str, list[SelfcheckRun]]]:
    names = list(dict.fromkeys(r.workload for r in runs))
    parts = [(name, [r for r in runs if r.workload == name]) for name in names]
    return [*parts, (ALL, list(runs))] if len(names) > 1 else parts


def _pairs(runs: Sequence[SelfcheckRun]) -> list[tuple[SelfcheckRun, SelfcheckRun]]:
    """Both orders of each swap, where both have a ratio."""
    table = {(r.group, r.swapped): r for r in runs if r.ratio is not None}
    return [
        (table[group, False], table[group, True])
        for group, swapped in table
        if not swapped and (group, True) in table
    ]


def reciprocal(one: SelfcheckRun, other: SelfcheckRun) -> bool:
    """Whether the interval of A against B and the inverted interval of B against A overlap."""
    bounds = (one.low, one.high, other.low, other.high)
    if not all(b is not None and b > 0 for b in bounds):
        return False
    low, high, other_low, other_high = (float(b or 0) for b in bounds)
    return low <= 1 / other_low and 1 / other_high <= high


def linearity(runs: Sequence[SelfcheckRun]) -> list[Linearity]:
    """A least-squares line of measured on true log slowdown for each workload with at least three levels."""
    result = []
    for workload, part in _by_workload([r for r in runs if r.experiment == "linearity" and r.ratio]):
        if len({r.percent for r in part}) < 3:
            continue
        xs = [math.log1p(r.percent / 100) for r in part]
        ys = [-math.log(r.ratio or math.nan) for r in part]
        slope, offset, error = _line(xs, ys)
        reach = t_quantile(0.975, len(xs) - 2) * error
        result.append(
            Linearity(
                workload=workload,
                n=len(xs),
                slope=slope,
                low=slope - reach,
                high=slope + reach,
                offset=offset,
                points=[(r.percent, 100 * math.expm1(y)) for r, y in zip(part, ys, strict=True)],
            )
        )
    return result


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float, float]:
    """Slope, offset and the slope's standard error."""
    n = len(xs)
    x_mean, y_mean = math.fsum(xs) / n, math.fsum(ys) / n
    square = math.fsum((x - x_mean) ** 2 for x in xs)
    slope = math.fsum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / square
    offset = y_mean - slope * x_mean
    rest = math.fsum((y - offset - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    return slope, offset, math.sqrt(rest / (n - 2) / square)


def medians(runs: Sequence[SelfcheckRun]) -> tuple[dict[str, float], dict[str, float]]:
    """By workload: the interval's half-width, and the seconds of one comparison."""
    widths: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for workload, part in _by_workload(runs):
        measured = [r.half_width for r in part if r.half_width is not None]
        if measured:
            widths[workload] = median(measured)
        seconds[workload] = median(r.seconds for r in part)
    return widths, seconds


def find(runs: Sequence[SelfcheckRun], rated: Sequence[Rate], lines: Sequence[Linearity]) -> list[str]:
    """What is wrong with compare beyond doubt: rates whose whole interval misses what the method promises."""
    found = []
    for rate in rated:
        share = f"{rate.k} of {rate.n} on {rate.workload} (at least {rate.low:.1%})"
        if rate.what == "false" and rate.low > NOMINAL_FALSE:
            found.append(f"identical code was called faster or slower too often: {share}")
        elif rate.what == "found" and rate.high < NOMINAL_FOUND:
            found.append(
                f"a known slowdown was found too seldom: {rate.k} of {rate.n} on {rate.workload} "
                f"(at most {rate.high:.1%})"
            )
        elif rate.what == "reciprocal" and rate.high < 1 - NOMINAL_FALSE:
            found.append(
                f"swapping the files does not invert the ratio: {rate.k} of {rate.n} on {rate.workload} agree"
            )
    for run in runs:
        if run.verdict == "rejected":
            found.append(f"honest code was rejected: {run.experiment} {run.workload}: {run.reason}")
        elif run.experiment != "aa" and run.verdict == ("slower" if run.swapped else "faster"):
            arm = "baseline" if run.swapped else "candidate"
            found.append(
                f"{run.percent:g} % more work in the {arm} on {run.workload} made the candidate {run.verdict}"
            )
    found += [
        f"measured slowdowns do not grow like the true ones on {line.workload}: slope {line.slope:.3f}"
        for line in lines
        if line.low > 1 + SLOPE_MARGIN or line.high < 1 - SLOPE_MARGIN
    ]
    return found
