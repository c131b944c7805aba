"""What a comparison was asked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trackside.stats.verdict import PROVING_PAIRS

__all__ = ["CERTIFIED_PAIRS", "DEFAULT_PAIRS", "QUICK_PAIRS", "Options"]

# On a CPU a pair costs a second and processes differ by a percent; on a GPU they cost more, differ less.
DEFAULT_PAIRS = {"cpu": 12, "cuda": 6}
QUICK_PAIRS = 2
# A t interval over two pairs is honest but says little; a certificate wants more.
CERTIFIED_PAIRS = PROVING_PAIRS

_BUDGET = 60.0
_BUILD_TIMEOUT = 300.0


@dataclass(frozen=True)
class Options:
    """What `compare` was asked."""

    baseline: Path
    candidate: Path
    device: str = "cpu"
    metric: str = "device"
    claim: str = "faster"
    budget: float = _BUDGET
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
