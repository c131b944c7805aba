"""What selfcheck runs: built-in workloads, experiments, and an order that stays balanced when cut short."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from trackside.records.errors import TracksideError
from trackside.records.selfcheck import Experiment

__all__ = [
    "AA_PER_UNIT",
    "EXPERIMENTS",
    "LEVELS",
    "WORKLOADS",
    "BuiltIn",
    "Experiment",
    "Trial",
    "Unit",
    "plan",
    "source_sha256",
    "write_workload",
]

EXPERIMENTS: Final[tuple[Experiment, ...]] = get_args(Experiment)
"""`aa`: a file against its own copy; `injected`: against itself with a known percentage more work; `swap`:
the same, once in each order; `linearity`: several percentages, to see the measured ones grow alike."""

LEVELS: Final = (5.0, 10.0, 20.0, 40.0)
"""Percentages of extra work in one set of the linearity experiment."""

AA_PER_UNIT: Final[Mapping[Experiment, int]] = {"aa": 1, "injected": 1, "swap": 10, "linearity": 25}
"""A/A comparisons for each unit of an experiment: two of a swap or four of a set say more than one."""


@dataclass(frozen=True)
class BuiltIn:
    """A workload that ships with selfcheck."""

    name: str
    kind: Literal["cpu", "cuda"]
    percent: float
    """Extra work of the injected experiment."""

    @property
    def file(self) -> str:
        return f"{'cpu' if self.kind == 'cpu' else 'gpu'}_{self.name}.py"


WORKLOADS: Final = (
    BuiltIn("mix", "cpu", 5.0),
    BuiltIn("copy", "cuda", 2.0),
    BuiltIn("gemm", "cuda", 2.0),
    BuiltIn("softmax", "cuda", 2.0),
    BuiltIn("pointwise", "cuda", 5.0),
)


@dataclass(frozen=True)
class Trial:
    """One comparison to run. The candidate does `percent` more work; when swapped, the baseline does."""

    experiment: Experiment
    workload: str
    percent: float
    swapped: bool = False
    group: int = 0
    """Comparisons that are read together: the two of a swap, the levels of one linearity set."""


Unit: TypeAlias = tuple[Trial, ...]
"""Trials that mean nothing without each other."""


def plan(
    kind: str,
    runs: int,
    experiments: Collection[Experiment] = EXPERIMENTS,
    workloads: Collection[str] = (),
    done: Mapping[Experiment, int] | None = None,
) -> list[Unit]:
    """Units in the order in which to run them.

    Experiments are spread evenly over the list, so that a run that is cut short has its share of each, and
    workloads take turns.

    Args:
        runs: A/A comparisons, and as many injected ones; a tenth as many swaps, a 25th as many level sets.
        done: units that earlier calls ran, by experiment; the turns of the workloads continue from there.

    Raises:
        TracksideError: kind `usage`, when a workload of that name is not built in for this device.
    """
    chosen = _chosen(kind, workloads)
    counts = {name: max(1, runs // each) for name, each in AA_PER_UNIT.items()}
    placed: list[tuple[float, int, Unit]] = []
    for rank, experiment in enumerate(e for e in EXPERIMENTS if e in experiments):
        before = (done or {}).get(experiment, 0)
        for i in range(counts[experiment]):
            unit = _unit(experiment, chosen[(before + i) % len(chosen)], before + i)
            placed.append(((i + 0.5) / counts[experiment], rank, unit))
    return [unit for _, _, unit in sorted(placed, key=lambda entry: entry[:2])]


def _chosen(kind: str, workloads: Collection[str]) -> list[BuiltIn]:
    here = [w for w in WORKLOADS if w.kind == kind]
    unknown = set(workloads) - {w.name for w in here}
    if unknown:
        raise TracksideError(
            "usage",
            f"found --workload {', '.join(sorted(unknown))}",
            f"needed: {', '.join(w.name for w in here)} (built in for {kind})",
        )
    return [w for w in here if not workloads or w.name in workloads]


def _unit(experiment: Experiment, workload: BuiltIn, group: int) -> Unit:
    if experiment == "aa":
        return (Trial("aa", workload.name, 0.0, group=group),)
    if experiment == "injected":
        return (Trial("injected", workload.name, workload.percent, group=group),)
    if experiment == "swap":
        return tuple(Trial("swap", workload.name, workload.percent, s, group) for s in (False, True))
    return tuple(Trial("linearity", workload.name, level, group=group) for level in LEVELS)


def write_workload(workload: str, percent: float, target: Path) -> None:
    """Copies a built-in workload's file, with the extra work written into it."""
    built_in = next(w for w in WORKLOADS if w.name == workload)
    source = (_FOLDER / built_in.file).read_text()
    changed, places = re.subn(
        r"^EXTRA_PERCENT = 0\.0$", f"EXTRA_PERCENT = {percent!r}", source, flags=re.MULTILINE
    )
    assert places == 1, f"{built_in.file} must have exactly one line `EXTRA_PERCENT = 0.0`"
    target.write_text(changed)


def source_sha256(packages: Iterable[str] = ("comparison", "workload", "stats")) -> str:
    """One hash over the sources that decide a verdict. Runs may be pooled only where it is the same."""
    root = _FOLDER.parent.parent
    digest = hashlib.sha256()
    for package in sorted(packages):
        for path in sorted((root / package).rglob("*.py")):
            data = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
            digest.update(data)
    return digest.hexdigest()


_FOLDER: Final = Path(__file__).resolve().parent / "selfcheck_workloads"
