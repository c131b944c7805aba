"""The same function twice, by the usual tools and by compare: how far apart do the two times come out?

The usual way is what their documentation shows first: `do_bench(f)` and `Timer(...).blocked_autorange()`, one
side after the other in one process. Ours are full comparisons of a file with its own copy.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.context import Bar, Context, Outcome, compare
from trackside.comparison.selfcheck_plan import WORKLOADS, write_workload

__all__ = ["run"]

TRIES = 30
APART = 0.02
# What compare may say of identical code.
TRUE_VERDICTS = ("equivalent", "inconclusive")
HERE = Path(__file__).resolve().parent

Clock = Callable[[Callable[[], object]], float]


def run(context: Context) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as scratch:
        files = _files(context.kind, Path(scratch))
        theirs, complete = _theirs(context, files)
        ours, done = _ours(context, files, Path(scratch))
    rows = [
        {"workload": name, "tool": tool, **_summary(ratios)}
        for (name, tool), ratios in {**theirs, **ours["ratios"]}.items()
    ]
    mine = [r for ratios in ours["ratios"].values() for r in ratios]
    bars = _bars(context.kind, ours["verdicts"], mine)
    notes = [
        f"{row['workload']:10} {row['tool']:22} {row['apart']} of {row['n']} more than {APART:.0%} apart, "
        f"worst {row['worst']:.1%}"
        for row in rows
    ]
    data = {"rows": rows, "verdicts": ours["verdicts"], "tries": _as_lists({**theirs, **ours["ratios"]})}
    if not (bars or done):
        notes.append("no time for one comparison")
    return Outcome(bars, data, complete and done, notes, excused=not done)


def _bars(kind: str, verdicts: list[str], ratios: list[float]) -> list[Bar]:
    """None where no comparison came to its end; one without a ratio counts as well."""
    if not verdicts:
        return []
    within = f"within {APART:.0%}"
    if ratios:
        worst = max(abs(r - 1) for r in ratios)
        beyond = sum(abs(r - 1) > APART for r in ratios)
        found = f"{beyond} of {len(ratios)} more than {APART:.0%} apart, worst {worst:.2%}"
        # On a CPU that others share the figures inform; the bar is for the GPU.
        passed = beyond == 0 if kind == "cuda" else None
    else:
        found, passed = f"no ratio in {len(verdicts)} comparisons", False
    false = Counter(verdict for verdict in verdicts if verdict not in TRUE_VERDICTS)
    kinds = "".join(f", {count} {verdict}" for verdict, count in sorted(false.items()))
    told = f"{false.total()} of {len(verdicts)}{kinds}"
    return [
        Bar("compare's ratio of identical code", within, found, passed),
        Bar("false verdicts beside the usual tools", "0", told, not false),
    ]


def _files(kind: str, scratch: Path) -> dict[str, Path]:
    files = {}
    for workload in WORKLOADS:
        if workload.kind == kind:
            files[workload.name] = scratch / f"{workload.name}.py"
            write_workload(workload.name, 0.0, files[workload.name])
    files["mlp"] = scratch / "mlp.py"
    shutil.copy(HERE / "workloads" / "mlp.py", files["mlp"])
    return files


def _theirs(context: Context, files: dict[str, Path]) -> tuple[dict[tuple[str, str], list[float]], bool]:
    """Ratios of two times of one function; tries take turns, so that a time limit cuts all alike."""
    tools = _tools(context.kind)
    ratios: dict[tuple[str, str], list[float]] = {(name, tool): [] for name in files for tool in tools}
    wanted = context.tries or TRIES
    functions = {name: _function(path, context.device) for name, path in files.items()}
    for function in functions.values():
        function()
    # Ours come after theirs, in half of the time.
    until = context.left() / 2 if context.seconds is not None else 0.0
    for number in range(wanted):
        for name, function in functions.items():
            for tool, clock in tools.items():
                ratios[name, tool].append(clock(function) / clock(function))
        if context.seconds is not None and context.left() < until:
            context.say(f"  stopped after {number + 1} of {wanted} tries")
            return ratios, False
    return ratios, True


def _tools(kind: str) -> dict[str, Clock]:
    def torch_timer(function: Callable[[], object]) -> float:
        from torch.utils.benchmark import Timer

        return float(Timer("f()", globals={"f": function}).blocked_autorange().median)

    if kind == "cpu":
        return {"torch.utils.benchmark": torch_timer}

    def do_bench(function: Callable[[], object]) -> float:
        import triton.testing

        return float(triton.testing.do_bench(function))

    return {"triton do_bench": do_bench, "torch.utils.benchmark": torch_timer}


def _function(path: Path, device: str) -> Callable[[], object]:
    specification = importlib.util.spec_from_file_location(f"benchmarked_{path.stem}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    given = module.inputs(1, device)
    state = (module.setup(1, device),) if hasattr(module, "setup") else ()
    return lambda: module.run(*state, *given)


def _ours(context: Context, files: dict[str, Path], scratch: Path) -> tuple[dict[str, Any], bool]:
    wanted = max(1, (context.tries or TRIES) // 10)
    ratios: dict[tuple[str, str], list[float]] = {}
    verdicts: list[str] = []
    longest = 10.0
    for number in range(wanted):
        for name, path in files.items():
            if context.left() < 1.2 * longest:
                return {"ratios": ratios, "verdicts": verdicts}, False
            copy = scratch / f"copy{number}" / path.name
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(path, copy)
            found = compare(context, path, copy, scratch / "store")
            if found.out_of_time:
                return {"ratios": ratios, "verdicts": verdicts}, False
            longest = max(longest, found.seconds)
            verdicts.append(found.verdict)
            if found.ratio is not None:
                ratios.setdefault((name, "trackside"), []).append(found.ratio)
            context.say(f"  {name}: {found.verdict} {found.ratio or found.error} in {found.seconds:.0f} s")
    return {"ratios": ratios, "verdicts": verdicts}, True


def _summary(ratios: list[float]) -> dict[str, Any]:
    apart = [max(r, 1 / r) - 1 for r in ratios]
    return {"n": len(ratios), "apart": sum(a > APART for a in apart), "worst": max(apart, default=0.0)}


def _as_lists(ratios: dict[tuple[str, str], list[float]]) -> list[dict[str, Any]]:
    return [{"workload": name, "tool": tool, "ratios": values} for (name, tool), values in ratios.items()]
