"""Which quads ran undisturbed, decided blind to which arm gains, and whether one arm was hit more often."""

import math

import numpy as np
import numpy.typing as npt

__all__ = [
    "arm_disturbances",
    "disturbed_share",
    "fisher_exact",
    "keep_quiet",
    "length_odds",
    "waiting",
]


# In slots of microseconds the clocks' own jitter would look like a disturbance.
_SHORTEST_NS = 1e6


def waiting(wall: npt.ArrayLike, cpu: npt.ArrayLike, arms: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """One plus the time that each slot waited beyond what is usual for its arm, over a medium slot's length.

    Times are in nanoseconds.

    The length is the same for both arms: 0.1 ms of waiting must count alike in slots of 1 ms and of 6 ms, or
    a candidate would look disturbed for being fast.
    """
    walls, labels = np.asarray(wall, dtype=np.float64), np.asarray(arms, dtype=np.str_)
    waited: npt.NDArray[np.float64] = walls - np.asarray(cpu, dtype=np.float64)
    lengths = [float(np.median(walls[labels == arm])) for arm in ("A", "B")]
    usual = np.where(labels == "A", np.median(waited[labels == "A"]), np.median(waited[labels == "B"]))
    scale = max(_SHORTEST_NS, math.sqrt(lengths[0] * lengths[1]))
    ratios: npt.NDArray[np.float64] = 1 + np.maximum(waited - usual, 0.0) / scale
    return ratios


def keep_quiet(
    ratios: npt.ArrayLike, arms: npt.ArrayLike, limit: float = 1.02, max_drop: float = 0.40
) -> npt.NDArray[np.bool_]:
    """Mask of the quads to keep: those in which every slot's ratio is under limit times its arm's own median.

    Whole quads go, or the design would lose its balance. If more than max_drop of them would go, the quietest
    are kept instead: beyond that the rule selects rather than cleans. The labels only choose which median a
    slot is held against, so exchanging them changes nothing.

    Args:
        ratios: (quads, 4) wall time over CPU time of each slot; one that is not finite counts as disturbed.
        arms: (quads, 4) of "A" and "B".
    """
    if not 0 <= max_drop < 1:
        raise ValueError(f"max_drop must lie in [0, 1), found {max_drop}")
    worst = _excess(ratios, arms, limit)[0].max(axis=1)
    keep: npt.NDArray[np.bool_] = worst < limit
    # The margin keeps a product such as 0.29 * 100 from falling short of the whole number it stands for.
    droppable = math.floor(max_drop * len(worst) + 1e-9)
    if np.count_nonzero(~keep) > droppable:
        keep = np.zeros(len(worst), dtype=np.bool_)
        keep[np.argsort(worst, kind="stable")[: len(worst) - droppable]] = True
    return keep


def disturbed_share(ratios: npt.ArrayLike, arms: npt.ArrayLike, limit: float = 1.02) -> float:
    """Share of the quads that `keep_quiet` would drop if it might drop any number."""
    excess = _excess(ratios, arms, limit)[0]
    return float((excess.max(axis=1) >= limit).mean()) if len(excess) else 0.0


def arm_disturbances(
    ratios: npt.ArrayLike, arms: npt.ArrayLike, limit: float = 1.02
) -> tuple[int, int, int, int]:
    """Quads with and without a disturbed A slot, then with and without a disturbed B slot.

    The four counts are `fisher_exact`'s arguments. Quads are counted, not slots, since one disturbance often
    spans both slots of an arm. A candidate that sleeps or waits where it would be slow has its slow quads
    dropped by `keep_quiet`; here is where that shows.
    """
    excess, labels = _excess(ratios, arms, limit)
    disturbed = excess >= limit
    hit_a = int(np.count_nonzero((disturbed & (labels == "A")).any(axis=1)))
    hit_b = int(np.count_nonzero((disturbed & (labels == "B")).any(axis=1)))
    quads = len(excess)
    return hit_a, quads - hit_a, hit_b, quads - hit_b


def length_odds(hits: int, quads: int, length_a: float, length_b: float) -> float:
    """Odds of a disturbed A over those of a disturbed B, if what disturbs comes at one rate in time.

    Longer slots are hit more often. `hits` counts both arms, each once per quad at most.
    """
    if not 0 < hits < 2 * quads or length_a == length_b:
        return 1.0
    low, high = 0.0, 700.0 / max(length_a, length_b)
    # Beyond exp(700) a float overflows; 200 halvings leave nothing to halve.
    for _ in range(200):
        rate = (low + high) / 2
        expected = -quads * (math.expm1(-rate * length_a) + math.expm1(-rate * length_b))
        low, high = (rate, high) if expected < hits else (low, rate)
    return math.expm1(rate * length_a) / math.expm1(rate * length_b)


def fisher_exact(a: int, b: int, c: int, d: int, odds: float = 1.0) -> float:
    """Two-sided p of the table [[a, b], [c, d]]: all tables with these margins no likelier than this one.

    `odds` is the odds ratio that is expected; 1 means that both rows are alike.
    """
    if min(a, b, c, d) < 0:
        raise ValueError(f"counts cannot be negative, found {(a, b, c, d)}")
    row, other, column = a + b, c + d, a + c
    # Whole numbers throughout, so that equally likely tables compare as equal.
    counts = {
        k: math.comb(row, k) * math.comb(other, column - k)
        for k in range(max(0, column - other), min(row, column) + 1)
    }
    if odds == 1:
        return sum(w for w in counts.values() if w <= counts[a]) / sum(counts.values())
    logs = {k: math.log(w) + k * math.log(odds) for k, w in counts.items()}
    most = max(logs.values())
    weights = {k: math.exp(w - most) for k, w in logs.items()}
    # Tables that would be equally likely but for rounding count as equal.
    return sum(w for w in weights.values() if w <= weights[a] * (1 + 1e-9)) / sum(weights.values())


def _excess(
    ratios: npt.ArrayLike, arms: npt.ArrayLike, limit: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.str_]]:
    """Each slot's ratio over its arm's median, infinite where unusable; and the labels as an array."""
    if not limit > 1:
        raise ValueError(f"limit is relative to the median and must exceed 1, found {limit}")
    values = np.array(ratios, dtype=np.float64)
    labels = np.asarray(arms, dtype=np.str_)
    if values.ndim != 2 or values.shape[1] != 4 or labels.shape != values.shape:
        raise ValueError(f"needed two arrays of shape (quads, 4), found {values.shape} and {labels.shape}")
    if not np.isin(labels, ("A", "B")).all():
        raise ValueError(f"arms are A or B, found {sorted(set(labels.ravel().tolist()))}")
    usable = np.isfinite(values) & (values > 0)
    excess = np.full(values.shape, np.inf)
    for arm in ("A", "B"):
        mine = (labels == arm) & usable
        if mine.any():
            excess[mine] = values[mine] / np.median(values[mine])
        elif labels.size:
            raise ValueError(
                f"arm {arm} has no usable ratio, so nothing tells its quiet slots from the others"
            )
    return excess, labels
