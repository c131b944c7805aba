"""What a comparison was asked."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trackside.records.devices import gpu_index
from trackside.records.errors import TracksideError
from trackside.stats.verdict import PROVING_PAIRS

__all__ = ["CERTIFIED_PAIRS", "DEFAULT_PAIRS", "QUICK_PAIRS", "Options", "budget_of", "check_common"]

# On a CPU a pair costs a second and processes differ by a percent; on a GPU they cost more, differ less.
DEFAULT_PAIRS = {"cpu": 12, "cuda": 6}
QUICK_PAIRS = 2
# A t interval over two pairs is honest but says little; a certificate wants more.
CERTIFIED_PAIRS = PROVING_PAIRS

# On a GPU processes differ less, and six pairs of them are through in half a minute.
_BUDGET, _QUICK_BUDGET = {"cpu": 60.0, "cuda": 40.0}, 15.0
_BUILD_TIMEOUT = 300.0


@dataclass(frozen=True)
class Options:
    """What `compare` was asked."""

    baseline: Path
    candidate: Path
    device: str = "cpu"
    metric: str = "device"
    claim: str = "faster"
    budget: float = _BUDGET["cpu"]
    delta: float | None = None
    quick: bool = False
    seed: int | None = None
    pairs: int | None = None
    threads: int | None = None
    build_timeout: float = _BUILD_TIMEOUT
    wait: bool = True
    checks_only: bool = False
    """Everything but the timing: what the tests of the red team use."""
    disabled: frozenset[str] = frozenset()
    unprotected: tuple[str, ...] = ()
    store: Path | None = None

    @property
    def kind(self) -> str:
        return "cpu" if self.device == "cpu" else "cuda"

    def check(self) -> None:
        """See that every value is one that a comparison can work with.

        Raises:
            TracksideError: kind `usage`, for the first that is not.
        """
        gpu_index(self.device)
        if self.metric not in ("device", "wall"):
            raise TracksideError("usage", f"found --metric {self.metric}", "needed: device or wall")
        if self.threads is not None and self.threads < 1:
            raise TracksideError("usage", f"found --threads {self.threads}", "needed: 1 or more")
        cores = len(os.sched_getaffinity(0))
        if self.threads is not None and self.threads > cores:
            raise TracksideError(
                "usage",
                f"found --threads {self.threads}, and {cores} cores that this process may use",
                f"needed: at most {cores}; more would wait for each other",
            )
        check_common(self.claim, self.budget, self.delta, self.pairs, self.build_timeout)

    def to_record(self) -> dict[str, Any]:
        shown = asdict(self)
        shown.update(
            {
                "baseline": str(self.baseline),
                "candidate": str(self.candidate),
                "disabled": sorted(self.disabled),
                "unprotected": list(self.unprotected),
                "store": str(self.store) if self.store else None,
            }
        )
        return shown


def budget_of(asked: float | None, quick: bool, device: str = "cpu") -> float:
    """The seconds that a comparison has, where nothing was asked for too."""
    usual = _BUDGET["cpu" if device == "cpu" else "cuda"]
    return asked if asked is not None else _QUICK_BUDGET if quick else usual


def check_common(
    claim: str, budget: float, delta: float | None, pairs: int | None, build_timeout: float
) -> None:
    """What files and commands are asked alike.

    Raises:
        TracksideError: kind `usage`, for the first value that does not do.
    """
    if claim not in ("faster", "not-slower"):
        raise TracksideError("usage", f"found --claim {claim}", "needed: faster or not-slower")
    if not 5 <= budget <= 86_400:
        raise TracksideError("usage", f"found --budget {budget}", "needed: 5 to 86400 seconds")
    if delta is not None and not 0 < delta < 1:
        raise TracksideError("usage", f"found --delta {delta}", "needed: a fraction such as 0.02")
    if pairs is not None and not 2 <= pairs <= 1000:
        raise TracksideError("usage", f"found --pairs {pairs}", "needed: 2 to 1000")
    if not 0 < build_timeout <= 86_400:
        raise TracksideError("usage", f"found --build-timeout {build_timeout}", "needed: up to 86400 seconds")
