"""Rules about training: optimizers, gradients, and what autograd is asked to do in vain."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from trackside.diagnose.chains import backward_of, numel
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.patterns import POINTWISE
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.source import Change
from trackside.diagnose.wording import count, many, percent
from trackside.diagnose.workbench import Ratio
from trackside.machine.doctor.script import Call
from trackside.profiling.line_stacks import Line
from trackside.records.durations import duration
from trackside.trace.edits import Edit, SetDuration
from trackside.trace.model import Ints, Kind
from trackside.trace.timeline import main_thread

__all__ = ["with_fused"]

_STEP = "Optimizer.step#"
# Optimizers with `fused=True`, and the operator of their plain loop that runs once for each parameter.
_FUSED = {
    "Adam": "aten::addcdiv_",
    "AdamW": "aten::addcdiv_",
    "Adagrad": "aten::addcdiv_",
    "SGD": "aten::add_",
}
_IN_PLACE = {
    "aten::lerp_": ("a.lerp_(b, 0.1)", "torch._foreach_lerp_(xs, ys, 0.1)"),
    "aten::mul_": ("a.mul_(0.99)", "torch._foreach_mul_(xs, 0.99)"),
    "aten::add_": ("a.add_(b, alpha=0.01)", "torch._foreach_add_(xs, ys, alpha=0.01)"),
    "aten::copy_": ("a.copy_(b)", "torch._foreach_copy_(xs, ys)"),
    "aten::clamp_": (
        "a.clamp_(-1, 1)",
        "torch._foreach_clamp_min_(xs, -1); torch._foreach_clamp_max_(xs, 1)",
    ),
}
_FEWEST_TENSORS = 8
# Operators that autograd keeps the result of; how many kinds are timed, and what recording takes where none
# could be; how many results are kept meanwhile; and the share of its time that an operator has left at least.
_SAVES_RESULT = frozenset({"tanh", "sigmoid", "exp", "sqrt", "relu"})
_KINDS_TIMED, _USUAL_RECORDING_NS, _LEAST_LEFT = 5, 1_000.0, 0.2
_FEWEST_KEPT, _MOST_KEPT, _LARGE = 20, 200, 1 << 16


@rule("unfused-optimizer", "training", item="training.fused-optimizer")
def unfused_optimizer(evidence: Evidence) -> Iterator[Draft]:
    """An optimizer that updates parameter by parameter with several operators each."""
    for ranges in _ranges_by_name(evidence):
        kind = evidence.name(int(ranges[0])).removeprefix(_STEP).removesuffix(".step")
        rows = evidence.within(evidence.ops(), ranges)
        outer = [int(row) for row in rows if evidence.outer[row] == row]
        names = Counter(evidence.name(row) for row in outer)
        if kind not in _FUSED or any("_fused_" in name for name in names) or not outer:
            continue
        shapes = [
            evidence.shape(row)
            for row in evidence.within(rows, ranges[:1]).tolist()
            if evidence.name(row) == _FUSED[kind]
        ]
        momentum = kind == "SGD" and names["aten::mul_"] > 0
        shapes = [shape for shape in (shapes[1::2] if momentum else shapes) if shape]
        if not shapes or evidence.has_device:
            continue
        ratio = _fused_ratio(evidence, kind, shapes, momentum)
        if ratio is None or ratio.best > 0.9:
            continue
        line = evidence.places.caller(int(ranges[0]))
        cost = evidence.cost(outer)
        own = {line} if line is not None else set()
        python = evidence.python_shrunk(own, ratio.host, set(outer))
        yield Draft(
            title=f"{kind} updates its {many(len(shapes), 'tensor')} one by one",
            line=line,
            evidence=[
                f"A step of {kind} runs {count(len(outer) / len(ranges))} operators, which take "
                f"{duration(cost)} of a step of {duration(evidence.step_ns)} "
                f"({percent(cost / evidence.step_ns)}), Python between them aside.",
                f"On tensors of these shapes fused=True was measured here to take {ratio}.",
            ],
            fix=f"Give torch.optim.{kind} the argument fused=True.",
            edits=[*evidence.shrunk(outer, ratio), *python],
            confidence="high",
            diff=with_fused(evidence, kind),
        )


def _ranges_by_name(evidence: Evidence) -> Iterator[Ints]:
    rows = evidence.annotations(_STEP)
    for name in np.unique(evidence.trace.name[rows]):
        yield rows[evidence.trace.name[rows] == name]


def _fused_ratio(
    evidence: Evidence, kind: str, shapes: list[tuple[int, ...]], momentum: bool
) -> Ratio | None:
    if evidence.workbench is None:
        return None
    more = ", momentum=0.9" if momentum else ""
    setup = (
        "def made(**more):\n"
        f"    ps = [torch.nn.Parameter(torch.rand(s)) for s in {shapes}]\n"
        "    for p in ps: p.grad = torch.rand_like(p)\n"
        f"    return torch.optim.{kind}(ps, lr=1e-6{more}, **more)\n"
        "one, other = made(foreach=False), made(fused=True)\n"
    )
    return evidence.workbench.ratio(setup, "one.step()", "other.step()")


def with_fused(evidence: Evidence, kind: str) -> str | None:
    """The file with the program's optimizers of one kind fused."""
    for source in evidence.sources.values():
        calls = source.script.exactly(f"torch.optim.{kind}")
        if calls and not any(call.has("fused") for call in calls):
            # torch refuses an optimizer that is told to be both.
            return source.diff([source.with_argument(call, "fused", "True", "foreach") for call in calls])
    return None


@rule("zero-grad-fills", "training", item="training.zero-grad")
def zero_grad_fills(evidence: Evidence) -> Iterator[Draft]:
    """Gradients that are filled with zeros, and then added to, instead of being dropped."""
    rows = evidence.ops("aten::zero_", "aten::_foreach_zero_")
    for line, fills in evidence.by_line(rows).items():
        source = evidence.source(line)
        calls = source.methods_on(line.line, "zero_grad") if source is not None else []
        if source is None or not calls:
            continue
        # With nothing to add to, autograd hands the new gradient over as it is.
        added = [
            row for row in evidence.ops("aten::add_").tolist() if evidence.under(row, "torch::autograd::Acc")
        ]
        several = max(1, round(len(added) / len(fills)))
        cost = evidence.cost([*fills, *added])
        told = [call for call in calls if call.has("set_to_none")]
        yield Draft(
            title="Gradients are filled with zeros instead of being dropped",
            line=line,
            evidence=[
                f"{count(len(fills) / len(evidence.steps))} tensors are filled with zeros in a step, and "
                f"{count(len(added) / len(evidence.steps))} gradients added to them.",
                f"Both take {duration(cost)} of a step of {duration(evidence.step_ns)} "
                f"({percent(cost / evidence.step_ns)}).",
            ],
            fix="Leave out set_to_none=False: then gradients are dropped, and the first of the next step "
            "is kept "
            "as it comes.",
            edits=[*evidence.without(fills), *evidence.shrunk(added, 1 - 1 / several)],
            least=evidence.without(fills),
            confidence="high",
            diff=source.diff([source.without_argument(call, "set_to_none") for call in told])
            if told
            else None,
        )


@rule("anomaly-mode", "training", item="pytorch.anomaly-mode")
def anomaly_mode(evidence: Evidence) -> Iterator[Draft]:
    """Autograd's anomaly detection left on: a stack trace for every operator, a check of every gradient."""
    checks = [
        row for row in evidence.ops("aten::isnan", "aten::_is_any_true").tolist() if evidence.in_backward[row]
    ]
    calls = _calls(evidence, "torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly")
    if len(checks) < 4 * len(evidence.steps) or not calls:
        return
    line, call = calls[0]
    forward = evidence.forward_ops
    made = [row for row in forward if backward_of(evidence, [row])]
    per_node = _anomaly_ns(evidence)
    edits: list[Edit] = [*evidence.without(checks)]
    tasks = evidence.traced.tasks_of(np.array(made, np.int64))
    edits.append(_shorter_by(evidence, tasks, per_node))
    source = evidence.source(line)
    keeps = (
        source.diff([_replaced(call, "torch.autograd.set_detect_anomaly(False)")])
        if source is not None and (call.name.endswith("set_detect_anomaly"))
        else None
    )
    yield Draft(
        title="Autograd's anomaly detection is on",
        line=line,
        evidence=[
            f"{count(len(checks) / len(evidence.steps))} checks for NaN run in the backward pass of a step "
            "and take "
            f"{duration(evidence.cost(checks))}.",
            f"{count(len(made) / len(evidence.steps))} operators of a step write down a stack trace; one "
            "takes about "
            f"{duration(per_node)} here.",
        ],
        fix="Switch it off once the NaN is found.",
        edits=edits,
        spread=0.45,
        diff=keeps,
    )


def _anomaly_ns(evidence: Evidence) -> float:
    """What anomaly detection adds to an operator that autograd records."""
    setup = (
        "x = torch.rand(8, requires_grad=True)\ndef f():\n    y = x\n    for _ in range(20): y = y * 1.5\n"
    )
    on = "with torch.autograd.detect_anomaly(check_nan=False): f()"
    found = evidence.workbench.times(setup, "f()", on) if evidence.workbench is not None else None
    return max(0.0, found[1].host - found[0].host) / 20 * 1e9 if found else 20_000.0


def _shorter_by(evidence: Evidence, tasks: Ints, ns: float) -> SetDuration:
    """Tasks shorter by so much in all, for each row's first task."""
    left = evidence.traced.graph.duration_ns[tasks].astype(np.float64)
    first = np.unique(evidence.traced.row[tasks], return_index=True)[1]
    left[first] = np.maximum(0.0, left[first] - ns)
    return SetDuration(tasks, left.astype(np.int64))


def _calls(evidence: Evidence, *names: str) -> list[tuple[Line, Call]]:
    """Calls of these functions in the program's files."""
    return [
        (Line(file, call.node.lineno), call)
        for file, source in evidence.sources.items()
        for call in source.script.exactly(*names)
    ]


def _replaced(call: Call, text: str) -> Change:
    return Change(call.node, text)


@rule("recomputed-activations", "training", item="training.activation-checkpointing")
def recomputed_activations(evidence: Evidence) -> Iterator[Draft]:
    """Activation checkpointing, which computes the forward pass twice, where there is memory to spare."""
    calls = _calls(
        evidence, "torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential"
    )
    free = evidence.machine.memory_free
    if not calls or (free is not None and free < 0.2):
        return
    trace, inside = evidence.trace, evidence.places.inside
    rows = evidence.ops()
    rows = rows[evidence.in_backward[rows] & (trace.sequence[rows] >= 0) & (trace.forward_thread[rows] <= 0)]
    names = [evidence.name(row) for row in rows.tolist()]
    rows = rows[[name.startswith("aten::") and name not in ("aten::detach",) for name in names]]
    rows = rows[~np.isin(inside[rows], rows)]
    # A derivative's own operators carry no number unless a graph of them is asked for.
    if len(rows) < 2 * len(evidence.steps):
        return
    cost = evidence.cost(rows)
    known = (
        f"{percent(free)} of the memory is free"
        if free is not None
        else "how much memory is free is not known"
    )
    yield Draft(
        title="The forward pass is computed a second time, for memory that is not needed",
        line=calls[0][0],
        evidence=[
            f"{count(len(rows) / len(evidence.steps))} operators of the forward pass run again during the "
            "backward "
            f"pass and take {duration(cost)} of a step of {duration(evidence.step_ns)} "
            f"({percent(cost / evidence.step_ns)}).",
            f"Meanwhile {known}.",
        ],
        fix="Call the function itself, not through torch.utils.checkpoint, for as many blocks as fit.",
        # Saving and restoring what is recomputed is Python of the same line.
        edits=[*evidence.without(rows, python=0.9), *evidence.python_shrunk({calls[0][0]}, 0.4)],
        least=evidence.without(rows, python=0.5),
        spread=0.35,
        confidence="medium" if free is not None else "low",
    )


@rule("unused-graph", "training", item="pytorch.inference-mode")
def unused_graph(evidence: Evidence) -> Iterator[Draft]:
    """Operators that autograd records, though no derivative of theirs is ever taken."""
    made = _recorded(evidence)
    idle = [row for row in made if not backward_of(evidence, [row])]
    if not idle:
        return
    groups: dict[tuple[str, int], list[int]] = {}
    by_line = evidence.by_line(idle)
    for line, rows in by_line.items():
        source = evidence.source(line)
        function = (
            source.script.function_around(source.statement(line.line) or ast.Pass()) if source else None
        )
        groups.setdefault((line.file, function.lineno if function else 0), []).extend(rows)
    groups = {key: rows for key, rows in groups.items() if len(rows) >= 4 * len(evidence.steps)}
    kinds = _recording_ns(evidence, [row for rows in groups.values() for row in rows])
    for (file, _), rows in groups.items():
        first = min(line for line, own in by_line.items() if line.file == file and set(own) & set(rows))
        of_kind = {ns: sorted(own & set(rows)) for ns, own in kinds.items() if own & set(rows)}
        per_op = sum(ns * len(own) for ns, own in of_kind.items()) / len(rows)
        yield Draft(
            title="Autograd records operators whose derivative is never taken",
            line=first,
            evidence=[
                f"{count(len(rows) / len(evidence.steps))} operators of a step are recorded for a backward "
                "pass "
                "that never runs through them.",
                f"Recording one takes about {duration(per_op)} here, by what they are, and keeps its inputs "
                "in memory.",
            ],
            fix="Run this part under torch.inference_mode(), or torch.no_grad() where its results meet "
            "autograd again.",
            edits=_unrecorded(evidence, of_kind),
            least=_unrecorded(evidence, of_kind, 0.5),
            most=_unrecorded(evidence, of_kind, 2.0),
        )


def _recorded(evidence: Evidence) -> list[int]:
    """Outermost forward operators that added a node to autograd's graph: the next number is a larger one."""
    trace = evidence.trace
    rows = [row for row in evidence.forward_ops if trace.sequence[row] >= 0]
    every = trace.of(Kind.OP)
    every = every[(trace.sequence[every] >= 0) & (trace.forward_thread[every] <= 0)]
    every = every[trace.lane[every] == main_thread(trace)]
    after = np.searchsorted(trace.start[every], trace.end[rows]) if rows else ()
    return [
        row
        for row, place in zip(rows, after, strict=True)
        if place < len(every) and trace.sequence[every[place]] > trace.sequence[row]
    ]


def _unrecorded(evidence: Evidence, of_kind: Mapping[float, list[int]], times: float = 1.0) -> list[Edit]:
    """Operators of each kind without so many times the nanoseconds that recording one takes."""
    edits: list[Edit] = []
    for ns, rows in of_kind.items():
        one = evidence.host_cost(rows) * len(evidence.steps) / len(rows)
        left = max(_LEAST_LEFT, 1 - times * ns / one) if one > 0 else 1.0
        # What operators launch takes a device as long either way.
        edits += evidence.shrunk(rows, Ratio(left, 1.0))
    return edits


def _recording_ns(evidence: Evidence, rows: Sequence[int]) -> dict[float, set[int]]:
    """Operators by what autograd adds to one: timed for the most frequent kinds, the others take the mean."""
    kinds: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        kinds.setdefault(_like(evidence, row), set()).add(row)
    found: dict[float, set[int]] = {}
    for (made, call), own in sorted(kinds.items(), key=lambda one: -len(one[1]))[:_KINDS_TIMED]:
        # As long as the graph is there, so are all results: fresh memory, where else the last one's would do.
        per_step = round(len(own) / len(evidence.steps))
        # On a device few enough that its queue never fills; nowhere so few that the context's entry shows.
        turns = _FEWEST_KEPT if evidence.has_device else max(_FEWEST_KEPT, min(_MOST_KEPT, per_step))
        setup = (
            f"{made}\nr = [one.clone().requires_grad_() for one in xs]\n"
            f"def kept(*xs): return [{call} for _ in range({turns})]\n"
            f"def dropped(*xs):\n    for _ in range({turns}): {call}\n"
        )
        bench = evidence.workbench
        arms = ("with torch.enable_grad(): kept(*r)", "with torch.no_grad(): dropped(*xs)")
        timed = bench.times(setup, *arms) if bench is not None else None
        if timed is not None:
            found.setdefault(max(0.0, timed[0].host - timed[1].host) / turns * 1e9, set()).update(own)
    known = set[int]().union(*found.values())
    usual = sum(ns * len(own) for ns, own in found.items()) / len(known) if known else _USUAL_RECORDING_NS
    if set(rows) - known:
        found.setdefault(usual, set()).update(set(rows) - known)
    return found


def _like(evidence: Evidence, row: int) -> tuple[str, str]:
    """What makes `xs`, and a call with them that autograd records as it does this operator."""
    shapes = [shape for shape in evidence.inputs(row).shapes if shape]
    name = evidence.name(row).removeprefix("aten::")
    # Of a large operator recording is too small a part to be seen, and no other than a small one's.
    if max(map(numel, shapes), default=0) > _LARGE:
        shapes = [(8,) * min(2, len(shape)) for shape in shapes]
    if name == "linear" and len(shapes) >= 2:
        return f"xs = [{', '.join(f'torch.rand({one})' for one in shapes[:3])}]", "F.linear(*xs)"
    if name in ("matmul", "mm") and len(shapes) >= 2:
        return f"xs = [torch.rand({shapes[0]}), torch.rand({shapes[1]})]", "torch.matmul(*xs)"
    if name in _SAVES_RESULT and shapes:
        return f"xs = [torch.rand({shapes[0]})]", f"torch.{name}(xs[0])"
    if len(shapes) >= 2 and shapes[0] == shapes[1] and name in POINTWISE:
        return f"xs = [torch.rand({shapes[0]}), torch.rand({shapes[0]})]", "xs[0] * xs[1]"
    alike = shapes[0] if shapes and name in POINTWISE else (8,)
    return f"xs = [torch.rand({alike})]", "xs[0] * 1.5"


@rule("parameters-in-python", "training", item="training.ema-foreach", on="host")
def parameters_in_python(evidence: Evidence) -> Iterator[Draft]:
    """A loop in Python that changes many tensors in place, one after the other."""
    rows = [row for row in evidence.forward_ops if evidence.name(row) in _IN_PLACE]
    for line, every in evidence.by_line(rows).items():
        source = evidence.source(line)
        if source is None or not source.loops(line.line, evidence.beside(line)):
            continue
        per_step = [row for row in every if row < _step_end(evidence)]
        if len(per_step) < _FEWEST_TENSORS or evidence.workbench is None:
            continue
        shapes = [evidence.shape(row) for row in per_step]
        # Slices of one tensor, all alike, are another rule's.
        if _indexes(evidence, line) > len(every) / 2:
            continue
        names = sorted({evidence.name(row) for row in per_step})
        setup = (
            f"xs = [torch.rand(s) for s in {shapes[: len(shapes) // len(names)]}]; ys = [x * 0.5 for x in xs]"
        )
        old = "for a, b in zip(xs, ys):\n" + "\n".join(f"    {_IN_PLACE[name][0]}" for name in names)
        new = "\n".join(_IN_PLACE[name][1] for name in names)
        ratio = evidence.workbench.ratio(f"torch.set_grad_enabled(False)\n{setup}", old, new)
        if ratio is None or ratio.host > 0.9:
            continue
        cost = evidence.cost(every) + evidence.python_ns({line})
        called = ", ".join(f"torch._foreach_{name.removeprefix('aten::')}" for name in names)
        yield Draft(
            title=f"{len(per_step)} tensors are changed one after the other in Python",
            line=line,
            evidence=[
                f"{count(len(every) / len(evidence.steps))} in-place operators of this line take "
                f"{duration(cost)} of a "
                f"step of {duration(evidence.step_ns)}, the loop's Python included "
                f"({percent(cost / evidence.step_ns)}).",
                f"On tensors of these shapes the grouped call was measured here to take {ratio}.",
            ],
            fix=f"Collect the tensors in lists once and change them together: {called}.",
            edits=evidence.shrunk(every, ratio, python=ratio.host),
        )


def _step_end(evidence: Evidence) -> int:
    """The first row behind the first step: rows are in order of time."""
    return int(np.searchsorted(evidence.trace.start, evidence.steps.end[0]))


def _indexes(evidence: Evidence, line: Line) -> int:
    rows = evidence.ops("aten::select", "aten::slice", "aten::index")
    return sum(evidence.places.caller(row) == line for row in rows.tolist())
