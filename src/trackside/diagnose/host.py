"""Rules about the host: Python between operators, loops over slices, and work that every step repeats."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

import numpy as np

from trackside.diagnose.chains import VIEWS, backward_of, forward_ops
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.source import AnyLoop, Change, Source
from trackside.diagnose.wording import count, duration, percent
from trackside.machine.doctor.script import Call
from trackside.profiling.line_stacks import Line
from trackside.trace.edits import Edit

__all__: list[str] = []

_FEWEST_TURNS = 10
# Least share of a step that a line must have before a rule speaks of it.
_WORTH = 0.02
_PICKS = frozenset(f"aten::{name}" for name in ("select", "slice", "unbind", "index", "narrow", "split", "chunk"))
# What an operator of one element takes, in nanoseconds, where it could not be measured.
_DISPATCH_NS = 1_500.0


@rule("python-loop", "host", item="pytorch.python-loops", yields_to=("cat-in-loop", "scalar-reads", "looped-products"))
def python_loop(evidence: Evidence) -> Iterator[Draft]:
    """A loop in Python over slices of a tensor, each turn with small operators of its own."""
    for source, loop, lines in _loops(evidence):
        rows = [row for row in forward_ops(evidence) if evidence.places.caller(row) in lines]
        if not rows or source.carries(loop):
            continue
        counts = Counter(evidence.name(row) for row in rows)
        works = {name: n for name, n in counts.items() if name not in VIEWS}
        picked = sum(n for name, n in counts.items() if name in _PICKS)
        turns = max(works.values(), default=0) / len(evidence.steps)
        if turns < _FEWEST_TURNS or (picked < 0.8 * turns * len(evidence.steps) and not counts["aten::unbind"]):
            continue
        back = backward_of(evidence, rows)
        cost = evidence.cost([*rows, *back]) + evidence.python_ns(lines)
        if cost < _WORTH * evidence.step_ns:
            continue
        busiest = max(lines, key=lambda line: sum(evidence.places.caller(row) == line for row in rows))
        yield Draft(
            title=f"A loop in Python runs {count(turns)} turns of small operators",
            line=busiest,
            evidence=[
                f"The loop's lines run {count(len(rows) / len(evidence.steps))} operators in a step, of "
                f"{duration(evidence.cost(rows) * len(evidence.steps) / len(rows))} each on average.",
                f"With Python between them and their derivatives that is {duration(cost)} of a step of "
                f"{duration(evidence.step_ns)} ({percent(cost / evidence.step_ns)}).",
            ],
            fix="Do all turns at once: the operators take whole tensors, with a dimension for what the loop counts.",
            edits=_at_once(evidence, rows, back, lines, turns, kept=1.0),
            least=_at_once(evidence, rows, back, lines, turns, kept=2.0),
            most=_at_once(evidence, rows, back, lines, turns, kept=0.3),
            confidence="medium",
        )


def _loops(evidence: Evidence) -> Iterator[tuple[Source, AnyLoop, set[Line]]]:
    """Innermost loops inside a step, each with its lines that ran."""
    found: dict[tuple[str, int, int], tuple[Source, AnyLoop, set[Line]]] = {}
    for line in evidence.lines:
        source = evidence.source(line)
        loops = source.loops(line.line, evidence.beside(line)) if source is not None else []
        if source is not None and loops and _in_steps(evidence, source, line):
            loop = loops[0]
            key = line.file, loop.lineno, loop.col_offset
            found.setdefault(key, (source, loop, set()))[2].add(line)
    yield from found.values()


def _in_steps(evidence: Evidence, source: Source, line: Line) -> bool:
    """Whether a line belongs to steps: not to a loop that has the step's loop inside it."""
    step = evidence.step_line
    return step is None or step != line


def _at_once(
    evidence: Evidence, rows: list[int], back: list[int], lines: set[Line], turns: float, kept: float
) -> list[Edit]:
    """The loop's operators once each, with as much of their work as is not the cost of a call, times `kept`."""
    call = _dispatch_ns(evidence)
    edits: list[Edit] = []
    for group in (rows, back):
        costs = evidence.cost(group) * len(evidence.steps)
        if not costs:
            continue
        works = [row for row in group if evidence.name(row) not in VIEWS]
        work = max(0.0, evidence.cost(works) * len(evidence.steps) - call * len(works))
        left = (costs / turns + kept * work) / costs
        edits += evidence.shrunk(group, min(1.0, left))
    return [*edits, *evidence.python_shrunk(lines, min(1.0, 2 / turns))]


def _dispatch_ns(evidence: Evidence) -> float:
    found = evidence.workbench.times("x = torch.ones(1)\ny = torch.ones(1)", "torch.add(x, y)") if (
        evidence.workbench is not None
    ) else None
    return found[0] * 1e9 if found else _DISPATCH_NS


@rule("cat-in-loop", "host", item="pytorch.python-loops")
def cat_in_loop(evidence: Evidence) -> Iterator[Draft]:
    """A tensor that grows by torch.cat in a loop, copied whole in every turn."""
    for line, rows in evidence.by_line(_forward(evidence, "aten::cat", "aten::vstack", "aten::hstack")).items():
        source = evidence.source(line)
        loops = source.loops(line.line, evidence.beside(line)) if source is not None else []
        per_step = len(rows) / len(evidence.steps)
        if source is None or not loops or per_step < _FEWEST_TURNS or not _grows(source, line):
            continue
        back = backward_of(evidence, rows)
        # One of them stays, the last, and of the derivatives as much as that one's.
        last = rows[int(per_step) - 1 :: max(1, int(per_step))]
        gone = [row for row in rows if row not in set(last)]
        kept = evidence.cost(last) / max(1.0, evidence.cost(rows))
        cost = evidence.cost([*rows, *back])
        yield Draft(
            title="A tensor grows by torch.cat in a loop, and is copied whole in each turn",
            line=line,
            evidence=[
                f"torch.cat runs {count(per_step)} times in a step on this line and takes {duration(cost)} of "
                f"{duration(evidence.step_ns)} ({percent(cost / evidence.step_ns)}).",
                f"The last of them alone takes {duration(evidence.cost(last))}: one call over all parts would do.",
            ],
            fix="Append the parts to a list in the loop, and call torch.cat once behind it.",
            edits=[*evidence.without(gone, python=0.7), *evidence.shrunk(back, kept)],
            least=[*evidence.without(gone, python=0.3), *evidence.shrunk(back, min(1.0, 2 * kept))],
            confidence="high",
        )


def _forward(evidence: Evidence, *names: str) -> list[int]:
    wanted = set(names)
    return [row for row in forward_ops(evidence) if evidence.name(row) in wanted]


def _grows(source: Source, line: Line) -> bool:
    """Whether what is assigned on a line is among what it is made of: `x = torch.cat([x, y])`."""
    statement = source.statement(line.line)
    if not isinstance(statement, ast.Assign):
        return False
    targets = {ast.unparse(target) for target in statement.targets}
    return any(isinstance(node, ast.expr) and ast.unparse(node) in targets for node in ast.walk(statement.value))


@rule("scalar-reads", "host", item="pytorch.python-loops", on="host")
def scalar_reads(evidence: Evidence) -> Iterator[Draft]:
    """Numbers that are read out of a tensor one at a time, with .item() or float()."""
    rows = _forward(evidence, "aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
    for line, reads in evidence.by_line(rows).items():
        per_step = len(reads) / len(evidence.steps)
        source = evidence.source(line)
        if per_step < _FEWEST_TURNS or source is None or not source.loops(line.line, evidence.beside(line)):
            continue
        others = [row for row in forward_ops(evidence) if evidence.places.caller(row) == line and row not in set(reads)]
        picks = [row for row in others if evidence.name(row) in VIEWS]
        only_reads = len(picks) == len(others)
        gone = [*reads, *(picks if only_reads else [])]
        cost = evidence.cost(gone) + (evidence.python_ns({line}) if only_reads else 0.0)
        yield Draft(
            title="Numbers are read out of a tensor one at a time",
            line=line,
            evidence=[
                f"This line reads {count(per_step)} single numbers from tensors in a step"
                + (f", and picks {count(len(picks) / len(evidence.steps))} elements for it." if picks else "."),
                f"That takes {duration(cost)} of a step of {duration(evidence.step_ns)} "
                f"({percent(cost / evidence.step_ns)}).",
            ],
            fix="Read them all at once with .tolist() before the loop, or compute on the tensor and read the result.",
            edits=evidence.without(gone, python=0.85 if only_reads else 0.2),
            confidence="high" if only_reads else "medium",
        )


@rule("built-in-over-tensor", "host", item="pytorch.python-loops", on="host")
def built_in_over_tensor(evidence: Evidence) -> Iterator[Draft]:
    """Python's own sum, max or min over a tensor: one operator for every element."""
    by_line = evidence.by_line(forward_ops(evidence))
    for line, rows in by_line.items():
        source = evidence.source(line)
        calls = source.built_ins_on(line.line, "sum", "max", "min", "any", "all") if source is not None else []
        if source is None or not calls or not any(evidence.name(row) == "aten::unbind" for row in rows):
            continue
        adds = [
            row
            for row in rows
            if evidence.name(row) in ("aten::add", "aten::gt", "aten::lt", "aten::is_nonzero", "aten::item")
        ]
        per_step = len(adds) / len(evidence.steps)
        if per_step < _FEWEST_TURNS:
            continue
        unbinds = [row for row in rows if evidence.name(row) == "aten::unbind"]
        back = backward_of(evidence, [*adds, *unbinds])
        cost = evidence.cost([*adds, *unbinds, *back]) + evidence.python_ns({line})
        call = calls[0]
        new = f"{ast.unparse(call.node.args[0])}.{call.name}(0)" if len(call.node.args) == 1 else None
        diff = source.diff([_change(call, new)]) if new and call.name == "sum" else None
        yield Draft(
            title=f"Python's {call.name}() walks over a tensor element by element",
            line=line,
            evidence=[
                f"{count(per_step)} operators of a step come from Python's {call.name}() on this line.",
                f"They take {duration(cost)} of a step of {duration(evidence.step_ns)}, derivatives and Python "
                f"included ({percent(cost / evidence.step_ns)}).",
            ],
            fix=f"Use the tensor's own method: .{call.name}(0).",
            edits=[
                *evidence.shrunk([*adds, *unbinds], 1.5 / per_step, python=1.5 / per_step),
                *evidence.shrunk(back, min(1.0, 2 / per_step)),
            ],
            confidence="high",
            diff=diff,
        )


def _change(call: Call, text: str) -> Change:
    return Change(call.node, text)


@rule("tensor-from-python", "host", item="pytorch.create-on-device", on="host")
def tensor_from_python(evidence: Evidence) -> Iterator[Draft]:
    """Tensors that are made from lists of Python's in every step."""
    for line in evidence.lines:
        source = evidence.source(line)
        calls = source.torch_calls_on(line.line, "tensor", "as_tensor", "FloatTensor", "LongTensor") if source else []
        if source is None or not calls or not any(_is_list(call) for call in calls):
            continue
        rows = [row for row in forward_ops(evidence) if evidence.places.caller(row) == line]
        made = [
            row
            for row in rows
            if evidence.name(row) in ("aten::empty", "aten::to", "aten::lift_fresh", "aten::detach_", "aten::copy_")
        ]
        others = evidence.cost([row for row in rows if row not in set(made)])
        python = evidence.python_ns({line})
        cost = python + evidence.cost(made)
        if cost < _WORTH * evidence.step_ns or others > cost:
            continue
        yield Draft(
            title="A tensor is made from a list of Python's in every step",
            line=line,
            evidence=[
                f"This line takes {duration(cost)} of a step of {duration(evidence.step_ns)} "
                f"({percent(cost / evidence.step_ns)}), {duration(python)} of it in Python: every number of a list "
                "is looked at by itself.",
            ],
            fix="Keep the data in a tensor or a NumPy array from the start and slice that; or make the tensor once, "
            "before the loop.",
            edits=[*evidence.without(made), *evidence.python_shrunk({line}, 0.05)],
            confidence="medium",
        )


def _is_list(call: Call) -> bool:
    """Whether what a tensor is made of is no single number and no handful of constants."""
    if not call.node.args:
        return False
    first = call.node.args[0]
    if isinstance(first, ast.List | ast.Tuple):
        return len(first.elts) > 8 or any(not isinstance(one, ast.Constant) for one in first.elts)
    return not isinstance(first, ast.Constant)


_EVERY_N = 20


@rule("printing-every-step", "host", item="training.logging-sync")
def printing_every_step(evidence: Evidence) -> Iterator[Draft]:
    """Output and logging in every step."""
    for line, call in _in_every_step(evidence, "print", "sys.stdout.write", "sys.stderr.write", "warnings.warn"):
        yield from _whole_line(
            evidence,
            line,
            title="Something is printed in every step",
            said=f"{call.method}() and what it needs take",
            fix=f"Print every {_EVERY_N} steps, and hold the values as tensors until then.",
            left=1 / _EVERY_N,
        )


@rule("saving-every-step", "host", item="training.checkpoint-cadence")
def saving_every_step(evidence: Evidence) -> Iterator[Draft]:
    """A checkpoint, or a copy of the whole state, in every step."""
    for line, call in _in_every_step(evidence, "torch.save", "copy.deepcopy", "pickle.dump", "pickle.dumps"):
        yield from _whole_line(
            evidence,
            line,
            title="The state is saved or copied in every step",
            said=f"{call.name}() takes",
            fix=f"Do it every {_EVERY_N} steps or more, by what a failure would cost.",
            left=1 / _EVERY_N,
        )


@rule("collecting-garbage", "host", item="pytorch.garbage-collector")
def collecting_garbage(evidence: Evidence) -> Iterator[Draft]:
    """Python's garbage collector, or torch's cache, emptied by hand in every step."""
    for line, call in _in_every_step(evidence, "gc.collect", "torch.cuda.empty_cache"):
        yield from _whole_line(
            evidence,
            line,
            title=f"{call.name}() runs in every step",
            said=f"{call.name}() takes",
            fix="Leave it out, or call it between epochs; gc.freeze() after the set-up keeps later collections short.",
            left=0.0,
        )


@rule("sleeping", "host")
def sleeping(evidence: Evidence) -> Iterator[Draft]:
    """A pause in every step."""
    for line, _ in _in_every_step(evidence, "time.sleep"):
        yield from _whole_line(
            evidence,
            line,
            title="The program sleeps in every step",
            said="time.sleep() takes",
            fix="Wait for what is needed (a queue, an event) instead of for a time, or leave it out.",
            left=0.0,
        )


def _in_every_step(evidence: Evidence, *names: str) -> Iterator[tuple[Line, Call]]:
    """Lines of the steps with a call of one of these, under no condition."""
    for line in evidence.lines:
        source = evidence.source(line)
        if source is None:
            continue
        for call in source.calls_on(line.line):
            own = call.name == "print" and "print" not in source.script.bound
            if (own and "print" in names) or (call.name in names and "." in call.name):
                loops = source.script.loops_around(call.node)
                if not source.script.is_conditional(call.node, loops[0] if loops else None):
                    yield line, call
                    break


def _whole_line(
    evidence: Evidence, line: Line, title: str, said: str, fix: str, left: float
) -> Iterator[Draft]:
    """All of a line but its `left`, operators and Python."""
    rows = [row for row in forward_ops(evidence) if evidence.places.caller(row) == line]
    cost = evidence.cost(rows) + evidence.python_ns({line})
    if cost < evidence.step_ns / 100:
        return
    yield Draft(
        title=title,
        line=line,
        evidence=[
            f"{said} {duration(cost)} of a step of {duration(evidence.step_ns)} ({percent(cost / evidence.step_ns)})."
        ],
        fix=fix,
        edits=[*evidence.shrunk(rows, left), *evidence.python_shrunk({line}, left)],
        confidence="high",
    )


_FACTORIES = {
    "arange": "aten::arange",
    "eye": "aten::eye",
    "linspace": "aten::linspace",
    "logspace": "aten::logspace",
    "tril": "aten::tril",
    "triu": "aten::triu",
    "hann_window": "aten::hann_window",
    "tril_indices": "aten::tril_indices",
    "triu_indices": "aten::triu_indices",
}
_MAKES_ANEW = frozenset({"ones", "zeros", "full"})


@rule("rebuilt-constants", "host", item="pytorch.create-on-device")
def rebuilt_constants(evidence: Evidence) -> Iterator[Draft]:
    """Masks, ranges and tables that are the same in every step and made anew in each."""
    by_line = evidence.by_line(forward_ops(evidence))
    for line, rows in by_line.items():
        source = evidence.source(line)
        calls = source.torch_calls_on(line.line, *_FACTORIES) if source is not None else []
        if source is None:
            continue
        constant = [call for call in calls if _is_constant(call, source)]
        names = {_FACTORIES[call.method] for call in constant}
        if any(_nested_anew(call, source) for call in constant):
            names |= {"aten::ones", "aten::zeros", "aten::full"}
        made = [row for row in rows if evidence.name(row) in names]
        if not made or not _same_each_step(evidence, made):
            continue
        cost = evidence.cost(made)
        if cost < _WORTH * evidence.step_ns:
            continue
        yield Draft(
            title="A constant is made anew in every step",
            line=line,
            evidence=[
                f"{', '.join(f'torch.{call.method}' for call in constant)} makes the same tensor "
                f"{count(len(made) / len(names) / len(evidence.steps))} times in a step.",
                f"That takes {duration(cost)} of {duration(evidence.step_ns)} ({percent(cost / evidence.step_ns)}).",
            ],
            fix="Make it once before the loop, or keep it in the module: self.register_buffer(…, persistent=False).",
            edits=evidence.without(made),
            confidence="high",
        )


def _is_constant(call: Call, source: Source) -> bool:
    """Whether a call makes the same for the same numbers: its arguments hold no tensor but such calls."""
    for node in [*call.node.args, *(word.value for word in call.node.keywords if word.arg not in ("device", "dtype"))]:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                name = source.script.name_of(inner.func) or ""
                short = name.removeprefix("torch.")
                if short not in _FACTORIES and short not in _MAKES_ANEW and short.rpartition(".")[2] != "size":
                    return False
    takes_tensor = call.method in ("tril", "triu")
    return not takes_tensor or any(isinstance(node, ast.Call) for node in call.node.args)


def _nested_anew(call: Call, source: Source) -> bool:
    return call.method in ("tril", "triu") and any(
        isinstance(node, ast.Call)
        and (source.script.name_of(node.func) or "").removeprefix("torch.") in _MAKES_ANEW
        for node in call.node.args
    )


def _same_each_step(evidence: Evidence, rows: list[int]) -> bool:
    """Whether the operators are called with the same numbers in every step."""
    steps: list[list[object]] = [[] for _ in range(len(evidence.steps))]
    for row in rows:
        at = int(np.searchsorted(evidence.steps.begin, evidence.trace.start[row], "right")) - 1
        steps[at].append(evidence.inputs(row))
    return all(one == steps[0] for one in steps)


@rule("repeated-casts", "host", item="precision.inference-weights")
def repeated_casts(evidence: Evidence) -> Iterator[Draft]:
    """A tensor that does not change and is converted in every step."""
    methods = ("to", "float", "double", "half", "bfloat16", "long", "int", "type", "contiguous")
    for line, rows in evidence.by_line(_forward(evidence, "aten::to", "aten::contiguous")).items():
        source = evidence.source(line)
        copies = [row for row in rows if len(evidence.closure([row])) > 1]
        if source is None or not copies:
            continue
        calls = [call for call in source.methods_on(line.line, *methods) if _is_fixed(evidence, source, call)]
        cost = evidence.cost(copies)
        if not calls or cost < _WORTH * evidence.step_ns or len(calls) < len(source.methods_on(line.line, *methods)):
            continue
        yield Draft(
            title="The same tensor is converted in every step",
            line=line,
            evidence=[
                f"{count(len(copies) / len(evidence.steps))} conversions of a step take {duration(cost)} of "
                f"{duration(evidence.step_ns)} ({percent(cost / evidence.step_ns)}); what they convert is given no new "
                "value in the loop.",
            ],
            fix="Convert it once, before the loop.",
            edits=evidence.without(copies),
            confidence="high",
        )


def _is_fixed(evidence: Evidence, source: Source, call: Call) -> bool:
    """Whether a method's receiver is a plain name that the loop of steps gives no value."""
    step = evidence.step_line
    receiver = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    if step is None or step.file != str(source.script.path) or not isinstance(receiver, ast.Name):
        return False
    loops = source.loops(call.node.lineno)
    holding = [loop for loop in loops if loop in source.loops(step.line)]
    return bool(holding) and all(receiver.id not in source.changes_in(loop) for loop in holding)
