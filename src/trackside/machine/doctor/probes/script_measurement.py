"""Probes of how a script measures: clocks without waiting, no warm-up, flattering inputs, profilers."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, unknown, warns
from trackside.machine.doctor.script import Argument, Call, Function
from trackside.machine.doctor.torch_script import WAITS, TorchScript, Verdict, script_probe, weigh

_CLOCKS = frozenset(
    f"time.{name}"
    for name in [
        "time",
        "perf_counter",
        "monotonic",
        "time_ns",
        "perf_counter_ns",
        "monotonic_ns",
        "process_time",
    ]
)
_GPU_WORK = frozenset({"torch.matmul", "torch.mm", "torch.bmm", "torch.einsum", "torch.addmm"})
_NO_TIMING = "the script times nothing with a clock of the host"


@dataclass(frozen=True)
class _Timed:
    """What runs between two readings of a clock in one function."""

    start: Call
    end: Call
    calls: tuple[Call, ...]
    loops: tuple[ast.For | ast.While, ...]


def _timed(torch: TorchScript) -> list[_Timed]:
    """Differences `clock() - start` and `end - start` whose start is one reading above it."""
    script = torch.script
    clocks = [c for c in script.calls if c.name in _CLOCKS]
    named: dict[tuple[Function | None, str], list[Call]] = {}
    for clock in clocks:
        for name in script.names_of_result(clock.node):
            named.setdefault((script.function_around(clock.node), name), []).append(clock)
    found = []
    for node in script.nodes:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
            continue
        function = script.function_around(node)
        starts = named.get((function, script.name_of(node.right) or ""), [])
        left = [c for c in clocks if c.node is node.left] or named.get(
            (function, script.name_of(node.left) or ""), []
        )
        for end in left[-1:]:
            before = [s for s in starts if s.node.lineno < end.node.lineno]
            if not before:
                continue
            start = before[-1]
            found.append(_between(torch, start, end, function))
    return sorted(found, key=lambda one: one.end.node.lineno)


def _between(torch: TorchScript, start: Call, end: Call, function: Function | None) -> _Timed:
    script = torch.script
    lines = range(start.node.lineno, end.node.lineno + 1)
    inside = [
        c
        for c in script.calls
        if c.node.lineno in lines and script.function_around(c.node) is function and c.name not in _CLOCKS
    ]
    loops = [
        n
        for n in ast.walk(function or script.tree)
        if isinstance(n, ast.For | ast.While) and n.lineno in lines and (n.end_lineno or 0) in lines
    ]
    return _Timed(start, end, tuple(inside), tuple(loops))


def _is_gpu_work(torch: TorchScript, call: Call) -> bool:
    return call.name in torch.models or call.method == "backward" or call.name in _GPU_WORK


def _waits(torch: TorchScript, call: Call) -> bool:
    """Whether a call waits for the GPU, itself or one step further in this file."""
    if call.method in WAITS or call.name in ("print", "float", "int", "bool"):
        return True
    return call.method in torch.waiting


@script_probe("measurement.synchronise")
def synchronise(torch: TorchScript) -> Outcome:
    wanted = "torch.cuda.synchronize() before the clock is read"
    timed = [one for one in _timed(torch) if any(_is_gpu_work(torch, c) for c in one.calls)]
    # At the end of a whole epoch what is still in the queue does not count.
    timed = [one for one in timed if not any(loop in torch.batch_loops for loop in one.loops)]
    if not timed:
        return not_applicable("no work of the GPU is timed with a clock of the host")
    bad = [one for one in timed if not any(_waits(torch, c) for c in one.calls)]
    if bad:
        return warns(
            "the clock is read while the GPU still works",
            wanted,
            ["torch.cuda.synchronize()  # before each reading of the clock"],
            [one.end.place for one in bad],
        )
    return passes("the clock is read after the GPU has ended", wanted)


@script_probe("measurement.warm-up")
def warm_up(torch: TorchScript) -> Outcome:
    script = torch.script
    wanted = "calls before the first reading of the clock, by time rather than by number"
    seen, bad = False, []
    for one in _timed(torch):
        loops = [
            loop
            for loop in one.loops
            if isinstance(loop, ast.For)
            and isinstance(loop.iter, ast.Call)
            and script.name_of(loop.iter.func) == "range"
        ]
        function = script.function_around(one.start.node)
        for loop in loops:
            inside = set(ast.walk(loop))
            work = {
                c.name
                for c in one.calls
                if c.node in inside and _is_gpu_work(torch, c) and c.method != "backward"
            }
            if not work or any(c.method == "backward" and c.node in inside for c in one.calls):
                continue
            seen = True
            warm = any(
                c.name in work
                and c.node.lineno < one.start.node.lineno
                and script.function_around(c.node) is function
                for c in script.calls
            )
            if not warm and not any("warm" in word.lower() for word in torch.mentions):
                bad.append(one.start.place)
    if bad:
        return warns("the first call is timed with the rest", wanted, places=list(dict.fromkeys(bad)))
    if not seen:
        return not_applicable("no timed loop over work of the GPU is seen in the script")
    return passes("there are calls before the first reading of the clock", wanted)


@script_probe("measurement.random-data")
def random_data(torch: TorchScript) -> Outcome:
    script = torch.script
    wanted = "random inputs: torch.randn(..., device='cuda')"
    makers = ("torch.zeros", "torch.ones", "torch.empty")
    seen, bad = False, []
    for one in _timed(torch):
        for call in one.calls:
            if not _is_gpu_work(torch, call):
                continue
            for given in call.node.args:
                made = script.only_value(given)
                if made is given or not isinstance(made, ast.Call):
                    continue
                seen = True
                whole = any(
                    "int" in ast.dump(k.value) or "long" in ast.dump(k.value)
                    for k in made.keywords
                    if k.arg == "dtype"
                )
                if script.name_of(made.func) in makers and not whole:
                    bad += [c for c in script.calls if c.node is made]
    if bad:
        names = ", ".join(dict.fromkeys(c.name for c in bad))
        return warns(
            f"{names} as input of what is timed", wanted, places=list(dict.fromkeys(c.place for c in bad))
        )
    if not seen:
        return not_applicable("no input of timed work is seen in the script")
    return passes("timed inputs are not constant", wanted)


@script_probe("measurement.cuda-events")
def cuda_events(torch: TorchScript) -> Outcome:
    script = torch.script
    timed = [c for c in script.calls if c.method == "elapsed_time"]
    if not timed:
        return not_applicable("the script times nothing with CUDA events")
    names = {c.receiver for c in timed} | {script.name_of(a) for c in timed for a in c.node.args}
    events = [c for c in script.exactly("torch.cuda.Event") if names & set(script.names_of_result(c.node))]
    if "synchronize" not in torch.mentions and not any(c.method in WAITS for c in script.calls):
        return fails(
            "elapsed_time() before the events have happened",
            "event.synchronize() first",
            ["end.synchronize()  # before elapsed_time"],
            [c.place for c in timed],
        )

    def look(call: Call) -> Verdict:
        timing = script.read(call.expression("enable_timing", 0))
        if timing is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return None if timing is True else "an event without enable_timing=True has no time"

    return weigh(
        events,
        look,
        "events record times and are waited for",
        "enable_timing=True",
        ["torch.cuda.Event(enable_timing=True)"],
        fails,
    )


def _profilers(torch: TorchScript) -> list[Call]:
    return torch.script.exactly("torch.profiler.profile", "torch.autograd.profiler.profile")


@script_probe("training.steady-window")
def steady_window(torch: TorchScript) -> Outcome:
    script = torch.script
    profilers = [c for c in _profilers(torch) if c.name == "torch.profiler.profile"]
    if not profilers:
        return not_applicable("the script does not profile")

    def look(call: Call) -> Verdict:
        if call.expression("schedule") is not Argument.ABSENT:
            return None
        around = next((p for p, _ in script.above(call.node) if isinstance(p, ast.With)), None)
        steps = around is not None and any(
            n in torch.steps or n in torch.batch_loops for n in ast.walk(around)
        )
        return "the profile holds the first steps too (no schedule)" if steps else Argument.UNREADABLE

    return weigh(
        profilers,
        look,
        "a schedule chooses steady steps",
        "torch.profiler.schedule(skip_first=10, wait=5, warmup=2, active=3)",
    )


@script_probe("measurement.profiler-overhead")
def profiler_overhead(torch: TorchScript) -> Outcome:
    script = torch.script
    if not _profilers(torch):
        return not_applicable("the script does not profile")
    wanted = "times from a run without a profiler"
    names = ("torch.profiler.profile", "torch.autograd.profiler.profile")
    bad = [one.end.place for one in _timed(torch) if script.is_under(one.end.node, *names)]
    if bad:
        return warns("a clock is read inside a profiled region", wanted, places=bad)
    return passes("no clock is read inside a profiled region", wanted)


@script_probe("measurement.intervals", "anywhere")
def intervals(torch: TorchScript) -> Outcome:
    script = torch.script
    lists = set()
    for one in _timed(torch):
        for parent, _ in script.above(one.end.node):
            if (
                isinstance(parent, ast.Call)
                and isinstance(parent.func, ast.Attribute)
                and parent.func.attr == "append"
            ):
                lists.add(script.name_of(parent.func.value))
    if not lists:
        return not_applicable("the script keeps no samples of times")
    wanted = "a median with an interval"
    spread = {
        "median",
        "quantile",
        "quantiles",
        "percentile",
        "std",
        "stdev",
        "iqr",
        "bootstrap",
        "boxplot",
        "hist",
    }
    means = [
        c
        for c in script.calls
        if c.method in ("sum", "mean", "fmean") and any(script.name_of(a) in lists for a in c.node.args)
    ]
    if spread & torch.mentions:
        return passes("more than a mean is reported", wanted)
    if means:
        return warns("samples are reduced to their mean", wanted, places=[c.place for c in means])
    return unknown("what becomes of the samples is not seen in the script")


@script_probe("measurement.peak-memory")
def peak_memory(torch: TorchScript) -> Outcome:
    script = torch.script
    peaks = [
        c
        for c in script.exactly("torch.cuda.max_memory_allocated", "torch.cuda.max_memory_reserved")
        if (loops := script.loops_around(c.node))
        and loops[0] not in torch.steps
        and isinstance(loops[0], ast.For)
        and not any(n in torch.steps or n in torch.batch_loops for n in ast.walk(loops[0]))
    ]
    if not peaks:
        return not_applicable("no peaks of several runs are read in the script")
    wanted = "torch.cuda.reset_peak_memory_stats() before each run"
    if {"reset_peak_memory_stats", "reset_max_memory_allocated"} & torch.mentions:
        return passes("peaks are reset", wanted)
    return warns(
        "the peak is that of all runs so far",
        wanted,
        ["torch.cuda.reset_peak_memory_stats()"],
        [c.place for c in peaks],
    )


@script_probe("pytorch.nvtx-ranges")
def nvtx(torch: TorchScript) -> Outcome:
    script = torch.script
    bad = [
        c for c in script.exactly("torch.autograd.profiler.emit_nvtx") if not script.is_conditional(c.node)
    ]
    bad = [
        c
        for c in bad
        if c.expression("enabled", 0) is Argument.ABSENT or script.read(c.expression("enabled", 0)) is True
    ]
    wanted = "ranges around the phases of a step, and emit_nvtx only in a profiling branch"
    if bad:
        return warns("emit_nvtx marks every operator", wanted, places=[c.place for c in bad])
    if {"nvtx", "record_function"} & torch.mentions:
        return passes("phases are marked", wanted)
    return not_applicable("the script has no ranges")
