"""Rules about the processor: threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trackside.diagnose.chains import numel
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.source import Change
from trackside.diagnose.wording import percent, shape_text
from trackside.profiling.line_stacks import Line
from trackside.records.durations import duration
from trackside.trace.edits import Edit, Scale

__all__: list[str] = []

_PRODUCTS = {"aten::mm": "torch.mm(a, b)", "aten::addmm": "torch.mm(a, b)", "aten::bmm": "torch.bmm(a, b)"}
_LARGE = 1 << 15


@rule("threads", "cpu", item="cpu-numa.omp-threads-per-rank", on="host")
def threads(evidence: Evidence) -> Iterator[Draft]:
    """A number of threads that the program sets, and that another one beats on this machine."""
    known = _set_to(evidence)
    cpus = evidence.machine.cpus
    if known is None or evidence.workbench is None:
        return
    line, now = known
    if now == cpus:
        return
    edits: list[Edit] = []
    told = []
    total = 0.0
    for name, shapes, rows in _largest(evidence):
        a, b = shapes
        code = _PRODUCTS[name]
        setup = f"torch.set_grad_enabled(False); a, b = torch.rand({a}), torch.rand({b})"
        before = evidence.workbench.times(setup, code, threads=now)
        after = evidence.workbench.times(setup, code, threads=cpus)
        if before is None or after is None:
            continue
        ratio = after[0].host / before[0].host
        cost = evidence.cost(rows)
        total += cost
        told.append(
            f"A product of {shape_text(a)} with {shape_text(b)} ({percent(cost / evidence.step_ns)} of the "
            "step) was "
            f"measured here to take {percent(ratio)} of its time with {cpus} threads."
        )
        edits.append(Scale(evidence.tasks(rows), min(1.0, ratio)))
    if not edits or all(one.factor > 0.85 for one in edits if isinstance(one, Scale)):
        return
    source = evidence.source(line)
    calls = source.torch_calls_on(line.line, "set_num_threads") if source is not None else []
    yield Draft(
        title=f"The program uses {now} thread{'s' if now != 1 else ''} on {cpus} processors",
        line=line,
        evidence=[f"Products take {duration(total)} of a step of {duration(evidence.step_ns)}.", *told],
        fix=f"Leave out torch.set_num_threads({now}), or set it to {cpus}.",
        edits=edits,
        spread=0.35,
        diff=source.diff([Change(call.node.args[0], str(cpus)) for call in calls])
        if source is not None
        else None,
    )


def _set_to(evidence: Evidence) -> tuple[Line, int] | None:
    for file, source in evidence.sources.items():
        for call in source.script.exactly("torch.set_num_threads"):
            value = source.script.read(call.expression("int", 0))
            if isinstance(value, int) and value > 0:
                return Line(file, call.node.lineno), value
    return None


def _largest(evidence: Evidence) -> list[tuple[str, tuple[tuple[int, ...], ...], list[int]]]:
    """Products by shape, the three that take longest."""
    groups: dict[tuple[str, tuple[tuple[int, ...], ...]], list[int]] = {}
    for row in evidence.ops(*_PRODUCTS).tolist():
        shapes = tuple(shape for shape in evidence.inputs(row).shapes if len(shape) >= 2)[-2:]
        if len(shapes) == 2 and numel(shapes[0]) * shapes[1][-1] >= _LARGE:
            groups.setdefault((evidence.name(row), shapes), []).append(row)
    costs = Counter({key: evidence.cost(rows) for key, rows in groups.items()})
    return [(name, shapes, groups[name, shapes]) for (name, shapes), _ in costs.most_common(3)]
