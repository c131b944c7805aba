"""Time by line, by bucket and by module, as milliseconds of one step.

Windows with the line log give shares of the host's time, which are rescaled to a step's true length. What ran
on a device took as long there as it always does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from trackside.profiling.attribution import Attribution
from trackside.profiling.captured import Captured
from trackside.records.profile import Bucket, BucketName, Line, ModuleTime

__all__ = ["bucket_rows", "line_rows", "module_rows"]

MOST_LINES = MOST_MODULES = 2000
# The host's time by line adds up to the window's, but for a little rounding, unless threads ran side by side.
_ROUNDING = 1.02
# Less of a step than this is not worth a row.
_LEAST_SHARE = 1e-5


def line_rows(captured: Captured, step_ms: float, shown: Callable[[str], str]) -> list[Line]:
    """Lines with time of their own, the longest first.

    Args:
        captured: with its attribution.
        step_ms: how long a step really takes.
        shown: a file's name as it is shown.
    """
    attribution = captured.attribution
    if attribution is None:
        return []
    steps = _steps(captured)
    host, device = _host_scale(captured, attribution, step_ms), 1 / (1e6 * steps)
    on_device = attribution.total_device_ns > 0
    rows = []
    for line, time in attribution.lines.items():
        backward_ms = time.backward_ns * (device if on_device else host)
        cpu_ms, device_ms = time.cpu_ns * host, time.device_ns * device
        if on_device:
            share = (time.device_ns + time.backward_ns) / attribution.total_device_ns
        else:
            share = (cpu_ms + backward_ms) / step_ms
        if share < _LEAST_SHARE and cpu_ms < _LEAST_SHARE * step_ms:
            continue
        rows.append(
            Line(
                file=shown(line.file),
                line=line.line,
                text=captured.sources.text(line.file, line.line),
                function=time.function,
                device_ms=device_ms,
                backward_ms=backward_ms,
                cpu_ms=cpu_ms,
                share=share,
                calls=captured.line_runs.get(line, 0) / steps,
                shared=time.shared,
            )
        )
    return sorted(rows, key=lambda row: (-row.share, -row.cpu_ms))[:MOST_LINES]


def bucket_rows(captured: Captured, step_ms: float) -> list[Bucket]:
    """What belongs to no line, the longest first, without those that are empty."""
    attribution = captured.attribution
    if attribution is None:
        return []
    host, device = _host_scale(captured, attribution, step_ms), 1 / (1e6 * _steps(captured))
    rows = []
    for name in get_args(BucketName):
        device_ns, cpu_ms = attribution.device_ns[name], attribution.cpu_ns[name] * host
        total = attribution.total_device_ns
        share = device_ns / total if total else cpu_ms / step_ms
        if share >= _LEAST_SHARE or cpu_ms >= _LEAST_SHARE * step_ms:
            rows.append(Bucket(name=name, device_ms=device_ns * device, cpu_ms=cpu_ms, share=share))
    return sorted(rows, key=lambda row: (-row.share, -row.cpu_ms))


def module_rows(captured: Captured, step_ms: float) -> list[ModuleTime]:
    """Modules with what they call, in the order of their first calls."""
    attribution = captured.attribution
    if attribution is None:
        return []
    steps = _steps(captured)
    host, device = _host_scale(captured, attribution, step_ms), 1 / (1e6 * steps)
    total = attribution.total_device_ns
    rows = []
    for one in captured.modules[:MOST_MODULES]:
        cpu_ms, backward_ms = one.cpu_ns * host, one.backward_ns * (device if total else host)
        share = (one.device_ns + one.backward_ns) / total if total else (cpu_ms + backward_ms) / step_ms
        rows.append(
            ModuleTime(
                path=one.path,
                type=one.type,
                device_ms=one.device_ns * device,
                backward_ms=backward_ms,
                cpu_ms=cpu_ms,
                share=min(1.0, share),
                calls=one.calls / steps,
            )
        )
    return rows


def _steps(captured: Captured) -> float:
    """How many steps the window had; without steps by their length."""
    window = captured.window("B")
    if window is None or not window.step_ms:
        return 1.0
    return captured.attributed_ns / 1e6 / window.step_ms if captured.by_time else float(window.steps)


def _host_scale(captured: Captured, attribution: Attribution, step_ms: float) -> float:
    """Milliseconds of a step for each nanosecond of the host's in the window."""
    lines = sum(
        one.cpu_ns + (0.0 if attribution.total_device_ns else one.backward_ns)
        for one in attribution.lines.values()
    )
    total = lines + sum(attribution.cpu_ns.values())
    alone = total <= _ROUNDING * captured.attributed_ns
    return step_ms / ((total if alone else captured.attributed_ns) or 1.0)
