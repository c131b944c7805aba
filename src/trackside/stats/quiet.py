"""Which quads ran undisturbed, decided blind to which arm gains, and whether one arm was hit more often."""

import math

import numpy as np
import numpy.typing as npt

__all__ = ["arm_disturbances", "disturbed_share", "fisher_exact", "keep_quiet"]


def keep_quiet(
    ratios: npt.ArrayLike, arms: npt.ArrayLike, limit: float = 1.02, max_drop: float = 0.40
) -> npt.NDArray[np.bool_]:
    """Mask of the quads to keep: those in which every slot's ratio is under limit times its arm's own median.

    Whole quads go, or the design would lose its balance. If more than max_drop of them would go, the quietest
    are kept instead: beyond that the rule selects rather than cleans. Times never enter, and the labels only
    choose which median a slot is held against, so exchanging them changes nothing.

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


def fisher_exact(a: int, b: int, c: int, d: int) -> float:
    """Two-sided p of the table [[a, b], [c, d]]: all tables with these margins no likelier than this one."""
    if min(a, b, c, d) < 0:
        raise ValueError(f"counts cannot be negative, found {(a, b, c, d)}")
    row, other, column = a + b, c + d, a + c
    # Whole numbers throughout, so that equally likely tables compare as equal.
    weights = {
        k: math.comb(row, k) * math.comb(other, column - k)
        for k in range(max(0, column - other), min(row, column) + 1)
    }
    return sum(w for w in weights.values() if w <= weights[a]) / sum(weights.values())


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
