"""One analysis of one trace in a process of its own: what it found, how long it took, its peak of memory.

Run by the part `trace` as `python -P trace_child.py WHAT FILE`; imports only what WHAT needs, since the other
tool may live in an environment without ours.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

TOP = 5


def hta(path: Path) -> dict[str, Any]:
    """HolisticTraceAnalysis, as its documentation begins."""
    began = time.perf_counter()
    from hta.trace_analysis import TraceAnalysis

    imported = time.perf_counter()
    analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(path.parent))
    parts = analysis.get_temporal_breakdown(visualize=False).to_dict("records")[0]
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    done = time.perf_counter()
    # Its last row of a kind stands for all that it does not list.
    rows = [row for row in kernels.to_dict("records") if row["name"] != "others"]
    rows.sort(key=lambda row: -row["sum (us)"])
    return {
        "import_seconds": imported - began,
        "seconds": done - imported,
        "compute_us": float(parts["compute_time(us)"]),
        "other_us": float(parts["non_compute_time(us)"]),
        "idle_us": float(parts["idle_time(us)"]),
        "top": [[row["name"], float(row["sum (us)"])] for row in rows[:TOP]],
        "versions": {name: metadata.version(name) for name in ("HolisticTraceAnalysis", "pandas", "numpy")},
    }


def times(path: Path) -> dict[str, Any]:
    """Ours: kinds, names, lanes and times, which is what the two answers need."""
    return _ours(path, details=False)


def details(path: Path) -> dict[str, Any]:
    """Ours: with what was called with what, and which launched which."""
    return _ours(path, details=True)


def _ours(path: Path, details: bool) -> dict[str, Any]:
    began = time.perf_counter()
    from trackside.trace.reader import read_trace
    from trackside.trace.timeline import breakdown, ran_longest

    imported = time.perf_counter()
    trace = read_trace(path, details=details)
    device = trace.on_device
    begin, end = int(trace.start[device].min()), int(trace.end[device].max())
    parts, ran = breakdown(trace, begin, end), ran_longest(trace, begin, end)
    done = time.perf_counter()
    return {
        "import_seconds": imported - began,
        "seconds": done - imported,
        "compute_us": parts.compute / 1000,
        "other_us": (parts.communication + parts.copy) / 1000,
        "idle_us": (parts.host + parts.idle) / 1000,
        "top": [[one.name, one.total_ns / 1000] for one in ran[:TOP]],
        "events": len(trace),
    }


def whole(path: Path) -> dict[str, Any]:
    """Ours: all that a profile asks of a trace, up to the critical path of its first steps."""
    from trackside.trace.critical_path import critical_path
    from trackside.trace.dependencies import task_graph
    from trackside.trace.links import forward_of, launch_of, parents
    from trackside.trace.reader import read_trace
    from trackside.trace.schedule import schedule
    from trackside.trace.steps import Steps, find_steps
    from trackside.trace.timeline import breakdown, ran_longest

    began = time.perf_counter()
    trace = read_trace(path)
    steps = find_steps(trace)
    for begin, end in zip(steps.begin[:GRAPHED].tolist(), steps.end[:GRAPHED].tolist(), strict=True):
        breakdown(trace, begin, end)
    ran_longest(trace, int(steps.begin[0]), int(steps.end[-1]))
    launch_of(trace, trace.on_device)
    forward_of(trace, parents(trace))
    some = Steps(steps.begin[:GRAPHED], steps.end[:GRAPHED], steps.found_by)
    graph = task_graph(trace, some).graph
    path_length = critical_path(graph, schedule(graph)).total_ns
    return {
        "seconds": time.perf_counter() - began,
        "events": len(trace),
        "steps": len(steps),
        "graphed_steps": len(some),
        "critical_path_ns": path_length,
    }


GRAPHED = 50
"""Steps that become a graph; more of them say nothing new."""


def peak_bytes() -> int:
    """Of this process since it began; `ru_maxrss` may be its parent's."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found, status
    return int(found[1]) * 1024


ANALYSES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "hta": hta,
    "times": times,
    "details": details,
    "whole": whole,
}


if __name__ == "__main__":
    answer = ANALYSES[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(answer | {"peak_bytes": peak_bytes(), "cpu_seconds": time.process_time()}))
