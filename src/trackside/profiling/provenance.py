"""Which lines a compiled kernel comes from.

A trace names the compiled graph that runs, and in it the kernels in order; the graph's code has them in the
same order, each with the nodes that it computes. What was learnt of a graph is kept by its key: the next run
takes the code from a cache, and Inductor says nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trackside.profiling.line_stacks import Line
from trackside.trace.model import Kind, Trace

__all__ = ["Compiled", "KernelCall", "Origin", "compiled_graphs", "kernel_calls", "lines_of_kernels"]

_REGION = re.compile(r"^## Call CompiledFxGraph (\S+) ##$")
_NODES = re.compile(r"# Topologically Sorted Source Nodes: \[([^\]]*)\]")
# How Inductor's code runs something: its own kernels, torch's, and operators by their full names.
_CALLS = (
    re.compile(r"^\s*(triton_\w+)(?:\.run)?\("),
    re.compile(r"\bextern_kernels\.(\w+)\("),
    re.compile(r"\btorch\.ops\.aten\.(\w+)\."),
)
_KEY = re.compile(r"^\w+$")


class Origin(NamedTuple):
    """A line that something compiled comes from."""

    line: Line
    function: str


class KernelCall(NamedTuple):
    """One call in a graph's code."""

    kernel: str
    """As a trace names it, without `aten::`."""
    origins: tuple[Origin, ...]


Compiled = Mapping[str, Sequence[KernelCall]]
"""The calls of graphs in order, by the graph's key."""


def kernel_calls(code: str, nodes: Mapping[str, Sequence[Any]]) -> list[KernelCall]:
    """The calls of one graph's code.

    Args:
        nodes: file, line and function by name of a node.
    """
    found: list[KernelCall] = []
    names: list[str] = []
    for text in code.splitlines():
        if told := _NODES.search(text):
            names = [name.strip() for name in told[1].split(",")]
            continue
        kernel = next((match[1] for pattern in _CALLS if (match := pattern.search(text))), None)
        if kernel is None or text.lstrip().startswith("#"):
            continue
        places = [nodes[name] for name in names if name in nodes]
        origins = [Origin(Line(file, int(line)), function) for file, line, function in places]
        found.append(KernelCall(kernel, tuple(dict.fromkeys(origins))))
        # Where the next call has none of its own, nothing is known of it.
        names = []
    return found


def compiled_graphs(
    trace: Trace, noted: Iterable[Mapping[str, Any]], kept: Path | None
) -> tuple[Compiled, int]:
    """What is known of the graphs that run in a trace, and of how many nothing is.

    Args:
        noted: what the program's process noted while it compiled.
        kept: the folder in which that of earlier runs lies; what is new goes there.
    """
    keys = {match[1] for name in trace.names if (match := _REGION.match(name)) and _KEY.match(match[1])}
    found: dict[str, Sequence[KernelCall]] = {}
    for graph in noted:
        if graph["key"] in keys:
            calls = kernel_calls(graph["code"], graph["nodes"])
            found[graph["key"]] = calls
            if kept is not None:
                _keep(kept, graph["key"], calls)
    for key in keys - found.keys():
        if kept is not None and (earlier := _kept(kept, key)):
            found[key] = earlier
    return found, len(keys - found.keys())


def lines_of_kernels(trace: Trace, compiled: Compiled) -> dict[int, tuple[Origin, ...]]:
    """For operators that compiled graphs run, the lines that they come from."""
    found: dict[int, tuple[Origin, ...]] = {}
    ops = trace.of(Kind.OP)
    for region in trace.of(Kind.ANNOTATION).tolist():
        match = _REGION.match(trace.name_of(region))
        calls = compiled.get(match[1]) if match else None
        if not calls:
            continue
        inside = ops[
            (trace.lane[ops] == trace.lane[region])
            & (trace.start[ops] >= trace.start[region])
            & (trace.end[ops] <= trace.end[region])
        ]
        found |= _matched(trace, inside[np.argsort(trace.start[inside], kind="stable")].tolist(), calls)
    return found


def _matched(trace: Trace, rows: Sequence[int], calls: Sequence[KernelCall]) -> dict[int, tuple[Origin, ...]]:
    """Runs of one name are its calls in order, over and over if there are more."""
    by_name: dict[str, list[tuple[Origin, ...]]] = defaultdict(list)
    for call in calls:
        by_name[call.kernel].append(call.origins)
    seen: dict[str, int] = defaultdict(int)
    found: dict[int, tuple[Origin, ...]] = {}
    for row in rows:
        name = trace.name_of(row).removeprefix("aten::")
        if name in by_name:
            origins = by_name[name][seen[name] % len(by_name[name])]
            seen[name] += 1
            if origins:
                found[row] = origins
    return found


def _keep(folder: Path, key: str, calls: Sequence[KernelCall]) -> None:
    document = [[call.kernel, [[*origin.line, origin.function] for origin in call.origins]] for call in calls]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{key}.{os.getpid()}.part"
        part.write_text(json.dumps(document), encoding="utf-8")
        part.replace(folder / f"{key}.json")
    except OSError:
        # The next run knows less, which it says; this one has what it needs.
        return


def _kept(folder: Path, key: str) -> list[KernelCall] | None:
    try:
        document = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
        return [
            KernelCall(
                str(kernel), tuple(Origin(Line(str(f), int(n)), str(where)) for f, n, where in origins)
            )
            for kernel, origins in document
        ]
    except (OSError, ValueError, TypeError):
        return None
