"""Hardware counters: runs the program once more under Nsight Compute's `ncu`, for the kernels that matter.

ncu runs each kernel that it looks at some twenty times over, so it looks at few launches of each.
"""

from __future__ import annotations

import csv
import io
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from trackside.machine.surroundings import PROFILER_PLACES, find_profiler
from trackside.profiling.counter_names import COUNTERS, base_name
from trackside.profiling.launch import launch
from trackside.profiling.program import Program
from trackside.records.profile import Kernel, Trust

__all__ = ["CountersRead", "choose_kernels", "collect_counters", "read_table"]

_SHARE, _MOST_KERNELS = 0.9, 40
# Steps after which nothing new is launched. Of launches of one shape one is left out, then so many count.
_STEPS, _SKIPPED, _LAUNCHES = 6, 1, 2
_QUERY_SECONDS = 60.0
_LIMIT_SECONDS = 600.0


@dataclass(frozen=True)
class CountersRead:
    """Counters by the id of their kernel, as means over the launches that were looked at."""

    kernels: dict[str, dict[str, float]] = field(default_factory=dict)
    launches: int = 0
    missing: list[Trust] = field(default_factory=list)
    by_name: dict[str, dict[str, float]] = field(default_factory=dict)
    """The same by the kernel's name in the trace."""


def choose_kernels(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The longest ones that together take nine tenths of all kernels' time."""
    total = sum(kernel.total_ms for kernel in kernels)
    chosen: list[Kernel] = []
    for kernel in sorted(kernels, key=lambda one: -one.total_ms):
        if sum(one.total_ms for one in chosen) >= _SHARE * total or len(chosen) == _MOST_KERNELS:
            break
        chosen.append(kernel)
    return chosen


def collect_counters(
    program: Program,
    kernels: Sequence[Kernel],
    folder: Path,
    *,
    say: Callable[[str], None],
    seconds: float = _LIMIT_SECONDS,
) -> CountersRead:
    """Run the program once more, and read what its kernels count.

    Args:
        kernels: those to look at.
        folder: where `counters.csv`, as ncu wrote it, and the program's output stay.
        say: is told what happens, before it does.
        seconds: limit for the run; what was read until then counts.
    """
    if not kernels:
        return _nothing("no kernel ran on a GPU", None)
    tool = find_profiler("ncu")
    if tool is None:
        return _nothing(
            f"ncu was not found {PROFILER_PLACES}",
            "install Nsight Compute (it is part of the CUDA toolkit)",
        )
    counters, missing = _known_counters(tool)
    if not counters:
        return CountersRead(missing=missing)
    say(
        f"running the program once more under {tool}, "
        f"for {len(counters)} counters of {len(kernels)} kernels; "
        f"it is stopped after {_STEPS} steps or {seconds:.0f} s"
    )
    table = folder / "counters.csv"
    with (folder / "counters-output.txt").open("wb") as output:
        ended = launch(
            program,
            "trackside.profiling.counting:around",
            {"steps": _STEPS},
            folder,
            stdout=output.fileno(),
            seconds=seconds,
            under=_command(tool, kernels, counters, table),
        )
    text = table.read_text(encoding="utf-8", errors="replace") if table.exists() else ""
    found = read_table(text, kernels)
    missing += found.missing
    if ended.timed_out:
        missing.append(
            Trust(
                what="counters",
                effect=f"ncu was stopped after {seconds:.0f} s: what it had until then is shown",
                remedy="profile a smaller input",
            )
        )
    elif ended.signal is not None:
        missing.append(Trust(what="counters", effect=f"ncu was ended by signal {ended.signal}", remedy=None))
    names = {kernel.id: kernel.name for kernel in kernels}
    by_name = {names[one]: counted for one, counted in found.kernels.items()}
    return CountersRead(found.kernels, found.launches, missing, by_name)


def _nothing(why: str, remedy: str | None) -> CountersRead:
    return CountersRead(missing=[Trust(what="counters", effect=f"none were read: {why}", remedy=remedy)])


def _known_counters(tool: str) -> tuple[list[str], list[Trust]]:
    """Those that this chip has; asked of ncu, since a name that it does not know ends the whole run."""
    listed: set[str] = set()
    for collection in ("profiling", "launch"):
        command = [tool, "--query-metrics", "--query-metrics-collection", collection]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return [], _nothing(f"ncu cannot be asked for its counters: {error}", None).missing
        listed |= {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    known = [counter for counter in COUNTERS if base_name(counter) in listed]
    lacking = [counter for counter in COUNTERS if counter not in known]
    if not known:
        return [], _nothing("ncu lists none of them for this GPU", "update Nsight Compute").missing
    if not lacking:
        return known, []
    effect = f"{len(lacking)} of {len(COUNTERS)} are not on this GPU: {', '.join(lacking)}"
    return known, [Trust(what="counters", effect=effect, remedy=None)]


def _command(tool: str, kernels: Sequence[Kernel], counters: Sequence[str], table: Path) -> list[str]:
    names = "|".join(sorted({re.escape(_function(kernel.name)) for kernel in kernels}))
    return [
        tool,
        *("--kernel-name", f"regex:^({names})$", "--kernel-name-base", "function"),
        *("--filter-mode", "per-launch-config"),
        *("--launch-skip", str(_SKIPPED), "--launch-count", str(_LAUNCHES)),
        *("--metrics", ",".join(counters), "--clock-control", "none", "--target-processes", "all"),
        *("--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "demangled"),
        *("--log-file", str(table)),
    ]


def _function(name: str) -> str:
    """The function in a kernel's full name: `void at::native::f<4, g<int> >(int, h)` is `f`."""
    depth, plain = 0, ""
    for character in name.replace("(anonymous namespace)::", ""):
        if character == "<":
            depth += 1
        elif character == ">":
            depth = max(0, depth - 1)
        elif not depth and character == "(":
            break
        elif not depth:
            plain += character
    words = plain.split()
    return words[-1].rpartition("::")[2] if words else name


def read_table(text: str, kernels: Sequence[Kernel]) -> CountersRead:
    """What ncu wrote, by kernel: also of a run that was cut off."""
    missing = []
    if "ERR_NVGPUCTRPERM" in text:
        return _nothing(
            "the driver keeps counters for root",
            "run as root, or have the machine's owner set NVreg_RestrictProfilingToAdminUsers=0",
        )
    lines = text.splitlines()
    header = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if header is None:
        said = [line for line in lines if line.startswith(("==ERROR==", "==WARNING=="))]
        why = said[-1].partition("== ")[2] if said else "ncu wrote no table"
        return _nothing(why, None)
    table = [line for line in lines[header:] if not line.startswith("==")]
    # Under the header stands a row of units, without an ID; the last row may be cut off.
    rows = [row for row in csv.DictReader(io.StringIO("\n".join(table))) if (row.get("ID") or "").strip()]
    by_kernel: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        kernel = _matching(row.get("Kernel Name") or "", kernels)
        if kernel is not None:
            by_kernel.setdefault(kernel.id, []).append(_numbers(row))
    unseen = [kernel.id for kernel in kernels if kernel.id not in by_kernel]
    if unseen:
        effect = f"{len(unseen)} of {len(kernels)} kernels were launched too seldom: {', '.join(unseen)}"
        missing.append(Trust(what="counters", effect=effect, remedy=None))
    means = {
        kernel: {
            name: fmean(values)
            for name in COUNTERS
            if (values := [one[name] for one in launches if name in one])
        }
        for kernel, launches in by_kernel.items()
    }
    return CountersRead(means, sum(map(len, by_kernel.values())), missing)


def _matching(name: str, kernels: Sequence[Kernel]) -> Kernel | None:
    """The kernel of that name, or the only one of that function."""
    wanted, function = _plain(name), _function(name)
    for kernel in kernels:
        if _plain(kernel.name) == wanted:
            return kernel
    same = [kernel for kernel in kernels if _function(kernel.name) == function]
    return same[0] if len(same) == 1 else None


def _plain(name: str) -> str:
    """Without what the tools print differently: `(int)4` and `4`, `(bool)1` and `true`, `32u` and `32`."""
    name = re.sub(r"\((?:unsigned )?(?:int|long|short|char|bool)\)(?=-?\d)", "", name.removeprefix("void "))
    name = re.sub(r"\b(\d+)u?l{0,2}\b", r"\1", name)
    return re.sub(r"\s+", "", name.replace("true", "1").replace("false", "0"))


def _numbers(row: dict[str, str]) -> dict[str, float]:
    found = {}
    for name in COUNTERS:
        try:
            found[name] = float((row.get(name) or "").replace(",", ""))
        except ValueError:
            continue
    return found
