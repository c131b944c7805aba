"""Rules about what every step does again: constants, conversions, output, copies of the state, pauses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import numpy as np

from trackside.diagnose.chains import forward_named
from trackside.diagnose.constants import FACTORIES, table_of
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.source import Source
from trackside.diagnose.wording import many, percent
from trackside.machine.doctor.script import Call
from trackside.profiling.line_stacks import Line
from trackside.records.durations import duration

__all__: list[str] = []

# Least share of a step that a line must have before a rule speaks of it.
_WORTH = 0.02


@rule("tensor-from-python", "host", item="pytorch.create-on-device", on="host")
def tensor_from_python(evidence: Evidence) -> Iterator[Draft]:
    """Tensors that are made from lists of Python's in every step."""
    for line in evidence.lines:
        source = evidence.source(line)
        calls = (
            source.torch_calls_on(line.line, "tensor", "as_tensor", "FloatTensor", "LongTensor")
            if source
            else []
        )
        if source is None or not calls or not any(_is_list(call) for call in calls):
            continue
        rows = evidence.by_caller.get(line, [])
        made = [
            row
            for row in rows
            if evidence.name(row)
            in ("aten::empty", "aten::to", "aten::lift_fresh", "aten::detach_", "aten::copy_")
        ]
        others = evidence.cost(np.setdiff1d(rows, made).astype(np.int64))
        python = evidence.python_ns({line})
        cost = python + evidence.cost(made)
        if cost < _WORTH * evidence.step_ns or others > cost:
            continue
        yield Draft(
            title="A tensor is made from a list of Python's in every step",
            line=line,
            evidence=[
                f"This line takes {duration(cost)} of a step of {duration(evidence.step_ns)} "
                f"({percent(cost / evidence.step_ns)}), {duration(python)} of it in Python: every number "
                "of a list "
                "is looked at by itself.",
            ],
            fix="Keep the data in a tensor or a NumPy array from the start and slice that; or make the "
            "tensor once, "
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
_LEVELS = ("debug", "info", "warning", "error", "critical", "exception", "log")
_LOGGED = tuple(f"logging.{level}" for level in _LEVELS)


@rule("printing-every-step", "host", item="training.logging-sync")
def printing_every_step(evidence: Evidence) -> Iterator[Draft]:
    """Output and logging in every step."""
    for line, call in _in_every_step(
        evidence, "print", "sys.stdout.write", "sys.stderr.write", "warnings.warn", *_LOGGED
    ):
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


_READS = ("torch.load", "numpy.load", "json.load", "pickle.load", "pandas.read_csv", "PIL.Image.open")


@rule("reading-every-step", "host", item="storage.warm-page-cache")
def reading_every_step(evidence: Evidence) -> Iterator[Draft]:
    """A file that is the same in every step, and read anew in each."""
    for line, call in _in_every_step(evidence, *_READS):
        source = evidence.source(line)
        # What is read through a name that the loop of steps gives a value may be another file each time.
        if source is None or not call.node.args or not _is_same(evidence, source, call, call.node.args[0]):
            continue
        yield from _whole_line(
            evidence,
            line,
            title="The same file is read in every step",
            said=f"{call.name}() takes",
            fix="Read it once, before the loop, and keep what it gave.",
            left=0.0,
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
            fix="Leave it out, or call it between epochs; gc.freeze() after the set-up keeps later "
            "collections short.",
            left=0.0,
            diff=_left_out(evidence, line, call),
        )


@rule("sleeping", "host", item="pytorch.sleeps")
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
            name = f"logging.{call.method}" if _is_logger(source, call.receiver) else call.name
            if (own and "print" in names) or (name in names and "." in name):
                loops = source.script.loops_around(call.node)
                if not source.script.is_conditional(call.node, loops[0] if loops else None):
                    yield line, call
                    break


def _is_logger(source: Source, name: str) -> bool:
    """Whether a variable is what `logging.getLogger` gave; `?` and the like are none."""
    return name.isidentifier() and any(
        isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        and isinstance(node.value, ast.Call)
        and source.script.name_of(node.value.func) == "logging.getLogger"
        for node in source.script.nodes
    )


def _whole_line(
    evidence: Evidence, line: Line, title: str, said: str, fix: str, left: float, diff: str | None = None
) -> Iterator[Draft]:
    """All of a line but its `left`, operators and Python."""
    rows = evidence.by_caller.get(line, [])
    cost = evidence.cost(rows) + evidence.python_ns({line})
    if cost < evidence.step_ns / 100:
        return
    yield Draft(
        title=title,
        line=line,
        evidence=[
            f"{said} {duration(cost)} of a step of {duration(evidence.step_ns)} "
            f"({percent(cost / evidence.step_ns)})."
        ],
        fix=fix,
        edits=[*evidence.shrunk(rows, left), *evidence.python_shrunk({line}, left)],
        confidence="high",
        diff=diff,
    )


def _left_out(evidence: Evidence, line: Line, call: Call) -> str | None:
    """The file without the call."""
    source = evidence.source(line)
    gone = source.without_call(call) if source is not None else None
    return source.diff([gone]) if source is not None and gone is not None else None


_MAKES_ANEW = frozenset({"ones", "zeros", "full"})


@rule("rebuilt-constants", "host", item="pytorch.create-on-device")
def rebuilt_constants(evidence: Evidence) -> Iterator[Draft]:
    """Masks, ranges and tables that are the same in every step and made anew in each."""
    by_line = evidence.by_line(evidence.forward_ops)
    yield from _rebuilt_tables(evidence, by_line)
    for line, rows in by_line.items():
        source = evidence.source(line)
        if source is None or table_of(source, line):
            continue
        calls = [*source.torch_calls_on(line.line, *FACTORIES), *_halves(source, line)]
        constant = [call for call in calls if _is_constant(call, source)]
        names = {FACTORIES[call.method] for call in constant}
        if any(_nested_anew(call, source) for call in constant):
            names |= {"aten::ones", "aten::zeros", "aten::full"}
        made = [row for row in rows if evidence.name(row) in names]
        if not made or not _same_each_step(evidence, made):
            continue
        cost = evidence.cost(made)
        if cost < _WORTH * evidence.step_ns:
            continue
        outer = sum(evidence.name(row) in {FACTORIES[call.method] for call in constant} for row in made)
        yield Draft(
            title="A constant is made anew in every step",
            line=line,
            evidence=[
                f"{', '.join(f'{call.name}()' for call in constant)} makes the same tensor "
                f"{many(outer / len(constant) / len(evidence.steps), 'time')} in a step.",
                f"That takes {duration(cost)} of {duration(evidence.step_ns)} "
                f"({percent(cost / evidence.step_ns)}).",
            ],
            fix="Make it once before the loop, or keep it in the module: self.register_buffer(…, "
            "persistent=False).",
            edits=evidence.without(made),
            confidence="high",
        )


def _rebuilt_tables(evidence: Evidence, by_line: Mapping[Line, list[int]]) -> Iterator[Draft]:
    """Tables that are computed from ranges and numbers alone, over one line or several of a function."""
    together: dict[tuple[str, ast.AST], dict[Line, list[int]]] = {}
    for line, rows in by_line.items():
        source = evidence.source(line)
        function = table_of(source, line) if source is not None else None
        if function is not None and _same_each_step(evidence, rows):
            together.setdefault((line.file, function), {})[line] = rows
    for lines in together.values():
        made = [row for rows in lines.values() for row in rows]
        cost = evidence.cost(made) + evidence.python_ns(set(lines))
        names = sorted({evidence.name(row) for row in made} & set(FACTORIES.values()))
        if not names or cost < _WORTH * evidence.step_ns:
            continue
        yield Draft(
            title="A table that is the same in every step is computed anew in each",
            line=max(lines, key=lambda one: evidence.cost(lines[one])),
            evidence=[
                f"It is computed on {many(len(lines), 'line')} from {', '.join(names)} and numbers, from "
                "nothing that a step changes.",
                f"That takes {duration(cost)} of {duration(evidence.step_ns)} "
                f"({percent(cost / evidence.step_ns)}).",
            ],
            fix="Compute it once before the loop, or keep it in the module: self.register_buffer(…, "
            "persistent=False).",
            edits=[*evidence.without(made), *evidence.python_shrunk(set(lines), 0.0)],
            confidence="high",
        )


def _halves(source: Source, line: Line) -> list[Call]:
    """Triangles that are written behind what they are taken of: `torch.ones(n, n).triu(1)`."""
    return [
        call
        for call in source.methods_on(line.line, "tril", "triu")
        if call.receiver.removeprefix("torch.").removesuffix("()") in _MAKES_ANEW
    ]


def _taken_of(call: Call) -> list[ast.expr]:
    """A call's arguments, with what stands before its dot where that is made there too."""
    before = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    return [*([before] if isinstance(before, ast.Call) else []), *call.node.args]


def _is_constant(call: Call, source: Source) -> bool:
    """Whether a call makes the same for the same numbers: its arguments hold no tensor but such calls."""
    for node in [
        *_taken_of(call),
        *(word.value for word in call.node.keywords if word.arg not in ("device", "dtype")),
    ]:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                name = source.script.name_of(inner.func) or ""
                short = name.removeprefix("torch.")
                if (
                    short not in FACTORIES
                    and short not in _MAKES_ANEW
                    and short.rpartition(".")[2] != "size"
                    and not _is_number(inner, name)
                ):
                    return False
    takes_tensor = call.method in ("tril", "triu")
    return not takes_tensor or bool(_made_here(call))


def _is_number(call: ast.Call, name: str) -> bool:
    """`float("-inf")` and its like."""
    return name in ("float", "int") and all(isinstance(one, ast.Constant) for one in call.args)


def _made_here(call: Call) -> list[ast.Call]:
    """What a triangle is taken of, where that is a call or has one in it: `torch.ones(n, n) * -1e9`."""
    return [
        inner
        for one in _taken_of(call)
        if isinstance(one, ast.Call | ast.BinOp)
        for inner in ast.walk(one)
        if isinstance(inner, ast.Call)
    ]


def _nested_anew(call: Call, source: Source) -> bool:
    return call.method in ("tril", "triu") and any(
        (source.script.name_of(node.func) or "").removeprefix("torch.") in _MAKES_ANEW
        for node in _made_here(call)
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
    for line, rows in evidence.by_line(forward_named(evidence, "aten::to", "aten::contiguous")).items():
        source = evidence.source(line)
        copies = [row for row in rows if len(evidence.closure([row])) > 1]
        if source is None or not copies:
            continue
        calls = [call for call in source.methods_on(line.line, *methods) if _is_fixed(evidence, source, call)]
        cost = evidence.cost(copies)
        if (
            not calls
            or cost < _WORTH * evidence.step_ns
            or len(calls) < len(source.methods_on(line.line, *methods))
        ):
            continue
        yield Draft(
            title="The same tensor is converted in every step",
            line=line,
            evidence=[
                f"{many(len(copies) / len(evidence.steps), 'conversion')} in a step: {duration(cost)} of "
                f"{duration(evidence.step_ns)} ({percent(cost / evidence.step_ns)}); what they convert is "
                "given no new "
                "value in the loop.",
            ],
            fix="Convert it once, before the loop.",
            edits=evidence.without(copies),
            confidence="high",
        )


def _is_fixed(evidence: Evidence, source: Source, call: Call) -> bool:
    """Whether a method's receiver is a plain name that the loop of steps gives no value."""
    receiver = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    return isinstance(receiver, ast.Name) and _is_same(evidence, source, call, receiver)


def _is_same(evidence: Evidence, source: Source, call: Call, given: ast.expr) -> bool:
    """Whether the loop of steps, in which a call stands, gives no value to the names of an expression."""
    step = evidence.step_line
    if step is None or step.file != str(source.script.path):
        return False
    if not all(isinstance(node, ast.Name | ast.Constant | ast.Load) for node in ast.walk(given)):
        return False
    names = {node.id for node in ast.walk(given) if isinstance(node, ast.Name)}
    loops = source.loops(call.node.lineno)
    holding = [loop for loop in loops if loop in source.loops(step.line)]
    return bool(holding) and not any(names & source.changes_in(loop) for loop in holding)
