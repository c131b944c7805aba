"""From what was captured to the record of `profile`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import trackside
from trackside.profiling.captured import Captured
from trackside.profiling.fresh_memory import MOST_TOUCH_NS
from trackside.profiling.heap import KEEPING
from trackside.profiling.line_rows import bucket_rows, line_rows, module_rows
from trackside.profiling.memory_rows import memory_rows
from trackside.profiling.pace import untraced
from trackside.profiling.step_view import StepView, device_name
from trackside.profiling.verdict import verdict
from trackside.records.profile import (
    Breakdown,
    Finding,
    Gain,
    Kernel,
    LaneSpans,
    ProfileRecord,
    ProgramEnd,
    RankTimes,
    Trust,
)
from trackside.trace.steps import as_run

__all__ = ["RunFacts", "build_record", "shown_path", "step_in_view"]

# Traced over untraced: from here on the host's part of the trace is not to be taken as it stands.
_PERTURBED = 1.1
_FOUND_BY = {
    "optimizer": "calls of Optimizer.step",
    "marks": "marks of the profiler",
    "repetition": "operators that repeat",
    "window": "nothing: the window is taken as one",
}
# Of what runs for a finding's line, the longest.
_MOST_KERNELS = 8
_MOST_SOURCES, _MOST_SOURCE_SIGNS = 60, 6_000_000


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run beside what was captured in it."""

    command: list[str]
    program: ProgramEnd
    started: str
    started_s: float
    """In seconds since 1970."""
    seconds: float
    """Of the whole, analysis included."""
    folder: str
    """The program's working directory; files below it are named from there."""
    torch: str | None = None
    """The version that the program imported; None where it did not."""
    run_id: str | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    telemetry: dict[str, Any] = field(default_factory=dict)
    ceilings: dict[str, float] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    ranks: list[RankTimes] = field(default_factory=list)
    trust: list[Trust] = field(default_factory=list)
    """What the run itself adds."""


def build_record(
    captured: Captured, run: RunFacts, findings: Sequence[Finding] = (), together: Gain | None = None
) -> ProfileRecord:
    """The record of a run, from whatever it left.

    Args:
        captured: as read from its folder.
        run: the rest.
        findings: what to change, the best first; their files may be named in full.
        together: all of them at once.
    """
    shown = shown_path(run.folder)
    step_ms, view = step_in_view(captured)
    is_step = captured.steps is None or captured.steps.found_by != "window"
    lines = line_rows(captured, step_ms, shown) if step_ms else []
    buckets = bucket_rows(captured, step_ms) if step_ms else []
    seen = _seen(view, captured, shown, run.ceilings) if view is not None else _Seen()
    sources, source_trust = _sources(captured, shown, run.started_s)
    named = [_placed(one, shown, seen.kernels) for one in findings]
    timed = captured.window("A")
    return ProfileRecord(
        schema="trackside.profile/1",
        run_id=run.run_id,
        command=run.command,
        verdict=verdict(
            step_ms,
            is_step,
            seen.breakdown,
            lines,
            buckets,
            named,
            run.program,
            run.torch is not None,
            view is not None and view.on_device,
        ),
        device=device_name(captured.traced) if captured.traced is not None else "cpu",
        step_ms=step_ms,
        step_spread=timed.spread if timed is not None else None,
        steps=len(captured.steps) if captured.steps is not None else 0,
        steps_found_by=_FOUND_BY[captured.steps.found_by] if captured.steps is not None else "nothing",
        windows=captured.windows,
        breakdown_ms=seen.breakdown,
        attributed_share=captured.attribution.attributed_share if captured.attribution is not None else None,
        program=run.program,
        lines=lines,
        buckets=buckets,
        modules=module_rows(captured, step_ms) if step_ms else [],
        kernels=seen.kernels,
        kernels_left_out=seen.kernels_left_out,
        findings=named,
        together=together,
        critical_path=seen.critical_path,
        timeline=seen.timeline,
        ranks=run.ranks,
        memory=memory_rows(captured, shown, run.environment),
        ceilings=run.ceilings,
        telemetry=run.telemetry,
        environment=run.environment,
        sources=sources,
        trust=[
            *run.trust,
            *captured.missing,
            *_window_trust(captured, is_step),
            *seen.trust,
            *source_trust,
        ],
        options=run.options,
        started=run.started,
        seconds=run.seconds,
        version=trackside.__version__,
    )


def _placed(finding: Finding, shown: Callable[[str], str], kernels: Sequence[Kernel]) -> Finding:
    """A finding with its file as the record names it, and with what runs for its line."""
    if not finding.file:
        return finding
    file = shown(finding.file)
    place = f"{file}:{finding.line}"
    own = [one.id for one in kernels if place in one.lines]
    return finding.model_copy(update={"file": file, "kernels": own[:_MOST_KERNELS]})


@dataclass(frozen=True)
class _Seen:
    """What the traced steps show; nothing where there are none."""

    breakdown: Breakdown | None = None
    kernels: list[Kernel] = field(default_factory=list)
    kernels_left_out: int = 0
    critical_path: dict[str, float] = field(default_factory=dict)
    timeline: list[LaneSpans] = field(default_factory=list)
    trust: list[Trust] = field(default_factory=list)


def _seen(
    view: StepView, captured: Captured, shown: Callable[[str], str], ceilings: Mapping[str, float]
) -> _Seen:
    lines = captured.attribution.lines if captured.attribution is not None else ()
    places = {line: f"{shown(line.file)}:{line.line}" for line in lines}
    kernels, left_out = view.kernels(captured.attribution, places, ceilings)
    path: dict[str, float] = {}
    trust = []
    try:
        path = view.critical_path()
    except ValueError as error:
        trust.append(Trust(what="critical path", effect=f"it could not be found: {error}"))
    return _Seen(view.breakdown(), kernels, left_out, path, view.timeline(), trust)


def shown_path(folder: str) -> Callable[[str], str]:
    """How files are named: from the folder where the program was started, or in full if that is shorter."""
    here = os.path.realpath(folder)

    def shown(file: str) -> str:
        # A cell of a notebook is no file.
        if file.startswith("<"):
            return file
        real = os.path.realpath(os.path.join(folder, file))
        inside = os.path.relpath(real, here)
        return inside if not inside.startswith("..") else min(inside, real, key=len)

    return shown


def step_in_view(captured: Captured) -> tuple[float | None, StepView | None]:
    """A step's length by the best window there is, and the traced steps in its light."""
    known = next((one for name in ("A", "T", "B") if (one := captured.window(name)) is not None), None)
    step_ms = known.step_ms if known is not None else None
    trace, steps = captured.traced, captured.steps
    if trace is None or steps is None or not len(steps):
        return step_ms, None
    if step_ms is None:
        ran = as_run(trace, steps)
        step_ms = float(ran.end[-1] - ran.begin[0]) / 1e6 / len(steps)
    elif captured.window("A") is not None:
        touch_ns = captured.touch_ns.get("T", MOST_TOUCH_NS)
        trace, steps = untraced(trace, steps, captured.allocated, 1e6 * step_ms, touch_ns)
    return step_ms, StepView(trace, steps, step_ms)


def _window_trust(captured: Captured, is_step: bool) -> list[Trust]:
    found = _heap_trust(captured)
    lines = "L" if captured.window("L") is not None else "B"
    slower = {
        what: one.slowdown
        for what, name in (("tracing", "T"), ("the line log", lines))
        if (one := captured.window(name)) is not None and (one.slowdown or 0.0) > _PERTURBED
    }
    if slower:
        times = ", ".join(f"{what} made a step {times:.2f} times as long" for what, times in slower.items())
        of_lines = "those with the line log alone" if captured.lines_alone else "steps with both"
        effect = f"what tracing added is taken off parts and operators, lines are shares of {of_lines}"
        if captured.traced is not None and len(captured.traced.on_device):
            effect = "of the host's time parts are shares of traced steps, rescaled to untraced ones"
        found.append(Trust(what=times, effect=effect))
    if captured.steps is not None and not is_step:
        found.append(
            Trust(
                what="no steps",
                effect="no optimizer stepped and no operators repeated: what is called a step is the window",
                remedy="longer windows may hold several steps: --seconds 5"
                if captured.window("A") is not None
                else "record several steps",
            )
        )
    if captured.traced is None and captured.windows:
        effect = "the program ended before a step was traced: how long steps take is known, but not why"
        found.append(
            Trust(what="the trace", effect=effect, remedy="let it run longer, or ask for less: --steps 2")
        )
    if captured.traced is not None and captured.attribution is None:
        effect = "the program ended before lines were logged: operators are known, their lines are not"
        if not any(one.what == "lines" for one in captured.missing):
            found.append(
                Trust(what="lines", effect=effect, remedy="let it run longer, or fewer steps: --steps 2")
            )
    return found


def _heap_trust(captured: Captured) -> list[Trust]:
    """Whether a step's time is partly that of new memory: another run of the program need not have it."""
    if captured.heap_told:
        return [
            Trust(
                what="the heap kept memory in the untraced steps",
                effect="it was told to before the optimizer's first step, when windows went by the clock; "
                "unwatched, a step may also take new memory, and longer",
            )
        ]
    if not captured.faults:
        return []
    kept = captured.window("K") if captured.kept else None
    beside = f"; {kept.step_ms:.3g} ms in {kept.steps} steps in which the heap kept memory" if kept else ""
    luck = "which is luck of how it lies, and may come from being watched"
    return [
        Trust(
            what=f"new memory in every step: {captured.faults:,.0f} page faults",
            effect=f"the heap gave back what it had, {luck}{beside}",
            remedy=f"{KEEPING} trackside profile …",
        )
    ]


def _sources(
    captured: Captured, shown: Callable[[str], str], started_s: float
) -> tuple[dict[str, list[str]], list[Trust]]:
    """Files in which lines have time, and what is to be said of those that cannot be shown."""
    if captured.attribution is None:
        return {}, []
    kept: dict[str, list[str]] = {}
    trust: list[Trust] = []
    room = _MOST_SOURCE_SIGNS
    by_time = sorted(
        captured.attribution.lines.items(), key=lambda item: -(item[1].cpu_ns + item[1].device_ns)
    )
    for file in dict.fromkeys(line.file for line, _ in by_time):
        if (why := captured.sources.why_not.get(file)) is not None:
            trust.append(Trust(what=f"the source of {shown(file)}", effect=f"it cannot be shown: {why}"))
            continue
        lines = captured.sources.lines.get(file)
        if lines is None:
            continue
        room -= sum(map(len, lines))
        if room < 0 or len(kept) >= _MOST_SOURCES:
            trust.append(
                Trust(what="sources", effect=f"{shown(file)} and what took less time are left out: too long")
            )
            break
        kept[shown(file)] = lines
        if captured.sources.changed_s[file] > started_s:
            effect = "the program may run an older version of it: times may stand beside the wrong lines"
            trust.append(
                Trust(
                    what=f"{shown(file)} was changed while the program ran",
                    effect=effect,
                    remedy="run it again",
                )
            )
    return kept, trust
