"""Reads what a capture left in its folder; where something is missing it says what, why, and what follows."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trackside.profiling.attribution import Attribution, attribute
from trackside.profiling.clock import ClockFit, NoMarkers, fit, marker_spans
from trackside.profiling.fresh_memory import MOST_TOUCH_NS, most_touch_ns
from trackside.profiling.heap import takes_memory_anew
from trackside.profiling.inputs_log import INPUTS_FILE, STEPS_NOTED
from trackside.profiling.line_events import LineEvents
from trackside.profiling.line_stacks import Line
from trackside.profiling.line_times import LineSpans, line_spans, without_breaks
from trackside.profiling.markers import MARKER_PREFIX, Marker
from trackside.profiling.memory_use import MemoryUse, device_memory, host_memory
from trackside.profiling.module_times import ModuleCalls, module_calls
from trackside.profiling.provenance import Compiled, compiled_graphs, lines_of_kernels
from trackside.profiling.source_bytes import source_bytes
from trackside.profiling.sources import Sources, read_sources
from trackside.profiling.window_times import by_progress, by_steps, steps_ms
from trackside.records.errors import TracksideError
from trackside.records.profile import Trust, WindowTimes
from trackside.trace.execution_trace import read_calls, with_inputs
from trackside.trace.model import ON_DEVICE, Kind, Trace
from trackside.trace.reader import read_trace
from trackside.trace.steps import Steps, as_run, find_steps, like_steps
from trackside.trace.timeline import outermost

__all__ = ["Captured", "read_capture", "steps_beside", "without_marks"]


@dataclass
class Captured:
    """One program's windows, traces and lines."""

    windows: list[WindowTimes] = field(default_factory=list)
    by_time: bool = False
    """Whether windows went by the clock, since no optimizer took a step."""
    written: bool = False
    """Whether there is anything of it."""
    timed_ns: tuple[int, int] | None = None
    """The untraced window, in `time.perf_counter_ns`."""
    traced: Trace | None = None
    """Window T: without the line log."""
    allocated: Trace | None = None
    """What tensors took and gave back in that window; on the same lanes."""
    steps: Steps | None = None
    """Those of `traced`."""
    attribution: Attribution | None = None
    """Window B."""
    attributed_ns: int = 0
    """How long that was."""
    lines_alone: bool = False
    """Whether lines have their time from a window that nothing traced."""
    line_runs: dict[Line, int] = field(default_factory=dict)
    """How often each line ran in it; of lines too hot to be logged nothing is known."""
    modules: list[ModuleCalls] = field(default_factory=list)
    """In that window."""
    memory: list[MemoryUse] = field(default_factory=list)
    """In that window, by device."""
    peak_resident: int | None = None
    """Bytes that the whole process had at most, until that window was over."""
    sources: Sources = field(default_factory=Sources)
    missing: list[Trust] = field(default_factory=list)
    peak_bytes: int | None = None
    """The most memory that the program had: of its GPU, else of its process."""
    began_ns: dict[str, int] = field(default_factory=dict)
    """When each window began, in `time.perf_counter_ns`."""
    touch_ns: dict[str, float] = field(default_factory=dict)
    """What first touches cost a byte of new memory in each traced window, at most."""
    on_core: tuple[float, float] | None = None
    """How much of the traced window the main thread ran, and stood ready while others had its core."""
    faults: float = 0.0
    """Page faults of an untraced step, where they are a part of its time."""
    kept: bool = False
    """Whether there were none in the window in which the heap kept memory."""
    heap_told: bool = False
    """Whether the heap had been told to keep memory before the untraced window."""
    step_times_ms: dict[str, list[float]] = field(default_factory=dict)
    """Every step of each window, by the host's clock."""

    def window(self, name: str) -> WindowTimes | None:
        return next((one for one in self.windows if one.window == name), None)


def read_capture(folder: Path, compiled: Path | None = None) -> Captured:
    """Everything that a capture wrote before the program ended, however it ended.

    Args:
        compiled: where what is known of compiled code is kept from run to run.
    """
    found = Captured()
    document = _json(folder / "windows.json", found)
    windows = {one["stage"]: one for one in document.get("windows", [])}
    found.written = bool(document)
    found.by_time = document.get("by") == "time"
    found.peak_bytes = document.get("peak_bytes")
    found.began_ns = {name: one["began_ns"] for name, one in windows.items() if name in ("A", "T", "B")}
    found.missing += [
        Trust(what="part of the capture", effect=f"it ended early: {text}", remedy=None)
        for text in document.get("trouble", [])
    ]
    found.on_core = _on_core(windows.get("T"))
    found.missing += [
        Trust(what="the trace", effect=text, remedy="allow a larger one: --max-trace MB")
        for text in document.get("cuts", [])
    ]
    trace = _trace(folder / "trace.json", found)
    lines = _json(folder / "lines.json", found)
    alone = _json(folder / "lines_alone.json", found)
    noted = _json(folder / "compiled.json", found)
    clock = _clock(lines, trace, found) if trace is not None else None
    if trace is not None and _has_steps(windows.get("T"), found):
        _read_traced(trace, clock, windows, found)
        _read_inputs(folder / INPUTS_FILE, found)
    if trace is not None and clock is not None and _has_steps(windows.get("B"), found):
        modules = _json(folder / "modules.json", found)
        graphs = _graphs(trace, noted, compiled, found)
        _read_attributed(trace, clock, lines, alone, modules, windows, graphs, found)
        _read_memory(trace, clock, _json(folder / "memory.json", found), windows, found)
    if found.by_time:
        lined = windows.get("B")
        beside = _part(trace, clock, lined) if trace is not None and lined is not None else None
        found.windows = by_progress(
            windows,
            as_run(found.traced, found.steps)
            if found.traced is not None and found.steps is not None
            else None,
            _steps_in_window(found),
            as_run(beside, steps_beside(beside, found)) if beside is not None else None,
        )
    else:
        found.windows = by_steps(windows)
        found.step_times_ms = {name: steps_ms(one) for name, one in windows.items() if one["ends_ns"]}
    if found.window("A") is not None:
        found.timed_ns = windows["A"]["began_ns"], windows["A"]["closed_ns"] or windows["A"]["ends_ns"][-1]
    found.faults = _faults(windows.get("A"), found.window("A"))
    found.heap_told = bool(windows.get("A", {}).get("heap_told"))
    found.kept = "K" in windows and not takes_memory_anew(windows["K"])
    found.sources = _sources(_json(folder / "sources.json", found), noted, found)
    _say_what_is_missing(windows, found)
    return found


def _graphs(trace: Trace, noted: dict[str, Any], kept: Path | None, found: Captured) -> Compiled:
    """What is known of the compiled graphs of a trace; where a device computes, what is not is said."""
    graphs, unknown = compiled_graphs(trace, noted.get("graphs", ()), kept)
    if unknown and len(trace.on_device):
        some = f"{unknown} compiled graph{'s' if unknown != 1 else ''} came from torch's cache"
        found.missing.append(
            Trust(
                what="lines of compiled code",
                effect=f"{some}: their kernels stand at the line that called them",
                remedy="once with an empty cache: TORCHINDUCTOR_CACHE_DIR=$(mktemp -d) trackside profile …",
            )
        )
    return graphs


def _sources(document: dict[str, Any], noted: dict[str, Any], found: Captured) -> Sources:
    """Files as they were; those of code that was compiled in an earlier run, as they are."""
    kept = noted.get("sources", {}) | document
    known = {line.file for line in found.attribution.known} if found.attribution is not None else set()
    return read_sources(kept | source_bytes(sorted(known - kept.keys())))


def steps_beside(trace: Trace, found: Captured) -> Steps:
    """Steps of window B: those of window T again, for a part of a step may repeat as well."""
    if found.traced is None or found.steps is None or found.steps.found_by != "repetition":
        return find_steps(trace)
    like = like_steps(trace, found.traced, found.steps)
    if like is not None or not len(trace):
        return like or find_steps(trace)
    # Shorter than one of them: by their length.
    begin, end = int(trace.start.min()), int(trace.end.max())
    step = int((found.steps.end[-1] - found.steps.begin[0]) / len(found.steps))
    return Steps(np.array([begin]), np.array([max(end, begin + step)]), "repetition")


def _on_core(window: dict[str, Any] | None) -> tuple[float, float] | None:
    noted: list[tuple[int, int, int]] = window.get("core_ns", []) if window is not None else []
    if len(noted) < 2:
        return None
    (began, ran, ready), (ended, ran_then, ready_then) = noted[0], noted[-1]
    whole = max(1, ended - began)
    return (ran_then - ran) / whole, (ready_then - ready) / whole


def _as_run(trace: Trace | None, steps: Steps | None) -> Steps | None:
    return as_run(trace, steps or find_steps(trace)) if trace is not None else None


def _steps_in_window(found: Captured) -> float:
    """By operators: those of whole steps are known, and all of the window."""
    if found.traced is None or found.steps is None or not len(found.steps):
        return 0.0
    trace = found.traced
    starts = trace.start[outermost(trace, trace.of(Kind.OP))]
    whole = np.count_nonzero((starts >= found.steps.begin[0]) & (starts < found.steps.end[-1]))
    return len(found.steps) * len(starts) / whole if whole else float(len(found.steps))


_LONGER_OR_SHORTER = "let it run longer, or have short windows from the start: --seconds 0.1 --warmup 0"
# So many steps of a program are enough for all windows of these lengths.
_FEWER = ((8, "--warmup 1 --steps 2"), (5, "--warmup 1 --steps 1"))


def _say_what_is_missing(windows: dict[str, Any], found: Captured) -> None:
    if not windows or found.window("A"):
        return
    if found.by_time and "A" not in windows and found.traced is not None:
        effect = "it was over before anything was timed untraced; times are those of tracing"
        found.missing.append(Trust(what="true step times", effect=effect, remedy="let it run longer"))
    elif found.by_time and "A" in windows and windows["A"]["closed_ns"]:
        if found.traced is not None:
            effect = (
                "how far the program came in the untraced window is not known; times are those of tracing"
            )
            remedy = None
        else:
            effect = "there is no trace that would tell how many steps the untraced window had"
            remedy = f"{_LONGER_OR_SHORTER}; what other processes do is not watched"
        found.missing.append(Trust(what="true step times", effect=effect, remedy=remedy))
    elif found.by_time or not any(one["ends_ns"] for one in windows.values()):
        found.missing.append(
            Trust(
                what="steps",
                effect="the program ended before a window was over, and so nothing is known of its steps",
                remedy=_LONGER_OR_SHORTER,
            )
        )
    elif found.traced is None:
        steps = sum(len(one["ends_ns"]) for one in windows.values())
        fewer = next((asked for most, asked in _FEWER if steps >= most), None)
        least, asked = _FEWER[-1]
        found.missing.append(
            Trust(
                what="true step times",
                effect=f"the program ended after {steps} step{'s' if steps != 1 else ''}, before enough "
                "steps were seen: none was traced",
                remedy=f"let it run more steps, or ask for fewer: {fewer}"
                if fewer is not None
                else f"let it run {least} steps or more, with {asked}",
            )
        )
    else:
        found.missing.append(
            Trust(
                what="true step times",
                effect="the program ended before enough steps were seen; times are those of traced steps",
                remedy="let it run more steps, or ask for fewer: --warmup 1 --steps 2",
            )
        )


def _json(path: Path, found: Captured) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        found.missing.append(Trust(what=path.name, effect=f"it cannot be read: {error}", remedy=None))
        return {}
    return document


def _trace(path: Path, found: Captured) -> Trace | None:
    if not path.exists():
        return None
    try:
        trace = read_trace(path)
    except TracksideError as error:
        found.missing.append(Trust(what=path.name, effect=error.message, remedy=error.remedy))
        return None
    found.missing += [Trust(what=cut.what, effect=cut.why, remedy=None) for cut in trace.cuts]
    return trace


def _clock(document: dict[str, Any], trace: Trace, found: Captured) -> ClockFit | None:
    try:
        return fit((Marker(**one) for one in document.get("markers", ())), marker_spans(trace))
    except NoMarkers as error:
        found.missing.append(Trust(what="lines", effect=str(error), remedy=None))
        return None


def _part(trace: Trace, clock: ClockFit | None, window: dict[str, Any]) -> Trace:
    """What began in a window, without our marks; all of it, where the clocks cannot be compared."""
    part = without_marks(trace)
    if clock is None:
        return part
    kept = part.start >= clock.to_trace(window["began_ns"])
    if (end := _end_of(window)) is not None:
        kept &= part.start < clock.to_trace(end)
    return part.where(kept)


def _end_of(window: dict[str, Any]) -> int | None:
    end: int | None = window["closed_ns"]
    return window["ends_ns"][-1] if window.get("cut") and window["ends_ns"] else end


def _has_steps(window: dict[str, Any] | None, found: Captured) -> bool:
    """Without a whole step a window by steps holds what is no step's."""
    return window is not None and (found.by_time or bool(window["ends_ns"]))


def without_marks(trace: Trace) -> Trace:
    """A trace without what we put into it to join the clocks."""
    return trace.where(~np.isin(trace.name, _marker_names(trace)))


def _read_traced(trace: Trace, clock: ClockFit | None, windows: dict[str, Any], found: Captured) -> None:
    window = windows["T"]
    part = _part(trace, clock, window)
    if not len(part.of(Kind.OP, *ON_DEVICE)):
        found.missing.append(
            Trust(
                what="operators",
                effect="none ran in the main thread while it was traced, and the profiler sees no other",
                remedy="run the model in the main thread, or with an optimizer whose steps can be seen",
            )
        )
        return
    # Whose allocations are is looked at in the other window.
    found.traced = part.where(part.kind != Kind.MEMORY)
    found.allocated = part.where(part.kind == Kind.MEMORY)
    found.touch_ns["T"] = _touch_ns(found.allocated, windows, "T")
    if window["ends_ns"] and clock is not None:
        times = clock.to_trace([window["began_ns"], *window["ends_ns"]])
        found.steps = Steps(times[:-1], times[1:], "optimizer")
    else:
        found.steps = find_steps(part)


def _read_inputs(path: Path, found: Captured) -> None:
    """What operators were called with, where the trace does not say it. After `_read_traced`."""
    trace, steps = found.traced, found.steps
    if trace is None or steps is None or len(trace.inputs) or not path.exists():
        return
    try:
        calls = read_calls(path, 1 if found.by_time else STEPS_NOTED)
        found.traced = with_inputs(trace, steps, calls, found.by_time)
    except OSError as error:
        found.missing.append(Trust(what="shapes", effect=f"what operators were called with: {error}"))


def _read_attributed(
    trace: Trace,
    clock: ClockFit,
    document: dict[str, Any],
    alone: dict[str, Any],
    modules: dict[str, Any],
    windows: dict[str, Any],
    graphs: Compiled,
    found: Captured,
) -> None:
    window = windows["B"]
    if "times" not in document:
        found.missing.append(
            Trust(what="lines", effect="no time can be given to a line of the program", remedy=None)
        )
        return
    events = _until(LineEvents.from_document(document), _end_of(window))
    found.missing += [Trust(what="lines", effect=text, remedy=None) for text in events.incomplete]
    part = _part(trace, clock, window)
    found.touch_ns["B"] = _touch_ns(part.where(part.kind == Kind.MEMORY), windows, "B")
    before, turns = _lines_alone(alone, windows) if alone else (None, None)
    found.attribution = attribute(
        part,
        line_spans(events),
        clock,
        lines_of_kernels(part, graphs),
        before,
        turns,
        found.touch_ns["B"],
    )
    found.lines_alone = bool(alone)
    found.attributed_ns = events.stop_ns - events.start_ns
    found.line_runs = _line_runs(events)
    if modules:
        found.modules = module_calls(modules, part, clock)
        if modules["full"]:
            effect = "only the first of very many calls were seen"
            found.missing.append(Trust(what="modules", effect=effect, remedy=None))


def _touch_ns(taken: Trace, windows: dict[str, Any], name: str) -> float:
    """By the page faults of a traced window beyond those of the steps in which nothing was."""
    alone, traced = windows.get("L", {}), windows[name]
    counts = [window.get("faults", []) for window in (alone, traced)]
    lengths = [len(window.get("ends_ns", [])) for window in (alone, traced)]
    if any(len(count) < 2 for count in counts) or not all(lengths):
        return MOST_TOUCH_NS
    before, there = (count[-1] - count[0] for count in counts)
    return most_touch_ns(taken, there - before * lengths[1] / lengths[0])


def _faults(window: dict[str, Any] | None, timed: WindowTimes | None) -> float:
    """Of an untraced step; 0 where they are too few to speak of."""
    if window is None or timed is None or not takes_memory_anew(window):
        return 0.0
    count, length = window["faults"][-1] - window["faults"][0], window["closed_ns"] - window["began_ns"]
    return float(count * timed.step_ms * 1e6 / length)


# So many steps with lines alone can do without the first.
_FEWEST_LOGGED = 3


def _lines_alone(document: dict[str, Any], windows: dict[str, Any]) -> tuple[LineSpans, float | None]:
    """Lines without tracing, and how many steps the window with both has for each step there.

    In the first step Python makes ready all code that runs for the log, torch's too, which takes longer than
    a short step: that is no line's time.
    """
    events = LineEvents.from_document(document)
    window = windows.get("L")
    steps, both = (len(windows[name]["ends_ns"]) if name in windows else 0 for name in ("L", "B"))
    since = None
    if window is not None and steps >= _FEWEST_LOGGED and not events.mutes:
        since, steps = window["ends_ns"][0], steps - 1
    spans, turns = line_spans(events, since), both / steps if steps and both else None
    core = _on_core(window)
    if core is None or window is None:
        return spans, turns
    (began, *_), (ended, *_) = window["core_ns"]
    return without_breaks(spans, core[1] * (ended - (since or began))), turns


def _read_memory(
    trace: Trace, clock: ClockFit, document: dict[str, Any], windows: dict[str, Any], found: Captured
) -> None:
    """After `_read_attributed`."""
    attribution = found.attribution
    if not document or attribution is None:
        return
    found.peak_resident = document["peak_resident"]
    begin = int(clock.to_trace(windows["B"]["began_ns"]))
    ends = clock.to_trace(windows["B"]["ends_ns"]).tolist()
    # In a block that is one window the two are the same.
    earlier = clock.to_trace(windows["T"]["ends_ns"]).tolist() if "T" in windows else []
    held = document["held"]
    seen = [
        host_memory(trace, attribution, held.get("cpu", ()), begin, sorted({*earlier, *ends})),
        *(
            device_memory(device, history, attribution, held.get(device, ()), trace.base_ns, begin, ends)
            for device, history in document["devices"].items()
        ),
    ]
    found.memory = [one for one in seen if one is not None]
    texts = [*document["missing"], *(text for one in found.memory for text in one.incomplete)]
    found.missing += [Trust(what="memory", effect=text) for text in texts]


def _until(events: LineEvents, end: int | None) -> LineEvents:
    if end is None or end >= events.stop_ns:
        return events
    kept = [row for row, time in enumerate(events.times) if time < end]
    columns: dict[str, Any] = {
        name: array("q", [column[row] for row in kept])
        for name in ("times", "threads", "codes", "numbers")
        for column in (getattr(events, name),)
    }
    return replace(events, stop_ns=end, **columns)


def _line_runs(events: LineEvents) -> dict[Line, int]:
    muted = {(mute.code, mute.line) for mute in events.mutes}
    runs = Counter(zip(events.codes, events.numbers, strict=True))
    found: Counter[Line] = Counter()
    for (code, number), count in runs.items():
        if number > 0 and (code, number) not in muted:
            found[Line(events.places[code].file, number)] += count
    return dict(found)


def _marker_names(trace: Trace) -> list[int]:
    return [i for i, name in enumerate(trace.names) if name.startswith(MARKER_PREFIX)]
