"""Rules about loops in Python: over slices, over elements, and tensors that grow in them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from math import gcd
from statistics import median

import numpy as np

from trackside.diagnose.chains import VIEWS, backward_of, forward_named, numel
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.patterns import POINTWISE
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.source import AnyLoop, Change, Source
from trackside.diagnose.wording import count, many, percent
from trackside.machine.doctor.script import Call
from trackside.profiling.line_stacks import Line
from trackside.records.durations import duration
from trackside.trace.edits import Edit
from trackside.trace.model import Kind
from trackside.trace.timeline import main_thread, outermost

__all__: list[str] = []

_FEWEST_TURNS = 10
# One operator runs at most so often in a turn, or the counts have a number in common by chance.
_MOST_IN_A_TURN = 12
# Least share of a step that a line must have before a rule speaks of it.
_WORTH = 0.02
_PICKS = frozenset(
    f"aten::{name}" for name in ("select", "slice", "unbind", "index", "narrow", "split", "chunk")
)
_ONE_PASS = frozenset(
    [
        *("all", "amax", "amin", "any", "argmax", "argmin", "cat", "clone", "contiguous", "copy", "cumsum"),
        *("count_nonzero", "fill", "index_select", "linalg_vector_norm", "logsumexp", "masked_fill", "max"),
        *("mean", "min", "norm", "ones", "prod", "softmax", "stack", "std", "sum", "var", "zero", "zeros"),
        "zeros_like",
    ]
)
# Where operators take longer than this, what it takes to call them matters little.
_LARGE_NS = 40_000.0
# What calling an operator takes beside its work.
_CALL_NS = 2_000.0


@rule(
    "python-loop",
    "host",
    item="pytorch.python-loops",
    yields_to=("cat-in-loop", "scalar-reads", "scalar-writes", "looped-products"),
)
def python_loop(evidence: Evidence) -> Iterator[Draft]:
    """A loop in Python over slices of a tensor, each turn with small operators of its own."""
    for source, loop, lines in _loops(evidence):
        rows = [row for row in evidence.forward_ops if evidence.places.caller(row) in lines]
        if not rows or source.carries(loop):
            continue
        rows += _taken_apart(evidence, loop, lines)
        counts = Counter(evidence.name(row) for row in rows)
        works = {name: n for name, n in counts.items() if name not in VIEWS}
        picked = sum(n for name, n in counts.items() if name in _PICKS)
        turns = _turns(counts, works) / len(evidence.steps)
        if turns < _FEWEST_TURNS or (
            picked < 0.8 * turns * len(evidence.steps) and not counts["aten::unbind"]
        ):
            continue
        back = backward_of(evidence, rows)
        cost = evidence.cost([*rows, *back]) + evidence.python_ns(lines)
        if cost < _WORTH * evidence.step_ns or _usual_ns(evidence, rows) > _LARGE_NS:
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
            fix="Do all turns at once: the operators take whole tensors, with a dimension for what the "
            "loop counts.",
            edits=_at_once(evidence, rows, back, lines, turns, element_ns=1.0),
            least=_at_once(evidence, rows, back, lines, turns, element_ns=5.0),
            most=_at_once(evidence, rows, back, lines, turns, element_ns=0.3),
            confidence="medium",
        )


def _turns(counts: Counter[str], works: dict[str, int]) -> int:
    """How often a loop goes round in all steps: an operator may run several times in a turn."""
    most = max(works.values(), default=0)
    together = gcd(*(n for n in counts.values() if n >= _FEWEST_TURNS))
    # Of a loop with a branch the counts have no number in common.
    return together if together >= most / _MOST_IN_A_TURN else most


def _usual_ns(evidence: Evidence, rows: list[int]) -> float:
    """What one of these operators takes as a rule, views aside."""
    works = [row for row in rows if evidence.name(row) not in VIEWS]
    return median(evidence.cost([row]) for row in works) * len(evidence.steps)


def _taken_apart(evidence: Evidence, loop: AnyLoop, lines: set[Line]) -> list[int]:
    """What a loop's own line, if it is another, does to hand out the slices: `for row in x`."""
    head = Line(next(iter(lines)).file, loop.lineno)
    if head in lines:
        return []
    rows = forward_named(evidence, *_PICKS)
    return [row for row in rows if evidence.places.caller(row) == head]


def _loops(evidence: Evidence) -> Iterator[tuple[Source, AnyLoop, set[Line]]]:
    """Innermost loops inside a step, each with its lines that ran."""
    found: dict[tuple[str, int, int], tuple[Source, AnyLoop, set[Line]]] = {}
    for line in evidence.lines:
        source = evidence.source(line)
        loops = source.loops(line.line, evidence.beside(line)) if source is not None else []
        if source is not None and loops:
            loop = loops[0]
            key = line.file, loop.lineno, loop.col_offset
            found.setdefault(key, (source, loop, set()))[2].add(line)
    yield from found.values()


def _at_once(
    evidence: Evidence,
    rows: list[int],
    back: list[int],
    lines: set[Line],
    turns: float,
    element_ns: float,
) -> list[Edit]:
    """The loop's operators once each: of a turn's time only the work on its elements stays."""
    edits: list[Edit] = []
    for group in (rows, back):
        costs = evidence.cost(group) * len(evidence.steps)
        if not costs:
            continue
        work = sum(_work_ns(evidence, row, element_ns) for row in group)
        edits += evidence.shrunk(group, min(1.0, 1 / turns + work / costs))
    edits += evidence.python_shrunk(lines, min(1.0, 2 / turns))
    # Between derivatives it is autograd that goes from one to the next, on the line that asked for them all.
    asking = {line for row in back if (line := evidence.places.caller(row)) is not None}
    return [*edits, *evidence.python_shrunk(asking - lines, min(1.0, 2 / turns), set(back))]


def _is_light(name: str) -> bool:
    """Whether an operator looks at its elements once, and does little with each."""
    return name.removeprefix("aten::").removesuffix("_") in POINTWISE | _ONE_PASS


def _work_ns(evidence: Evidence, row: int, element_ns: float) -> float:
    """What an operator takes for its elements alone."""
    name = evidence.name(row)
    if name in VIEWS:
        return 0.0
    cost = evidence.cost([row]) * len(evidence.steps)
    if not _is_light(name):
        return max(0.0, cost - _CALL_NS)
    return min(cost, element_ns * max((numel(shape) for shape in evidence.inputs(row).shapes), default=1))


@rule("cat-in-loop", "host", item="pytorch.python-loops")
def cat_in_loop(evidence: Evidence) -> Iterator[Draft]:
    """A tensor that grows by torch.cat in a loop, copied whole in every turn."""
    for line, rows in evidence.by_line(
        forward_named(evidence, "aten::cat", "aten::vstack", "aten::hstack")
    ).items():
        source = evidence.source(line)
        loops = source.loops(line.line, evidence.beside(line)) if source is not None else []
        per_step = len(rows) / len(evidence.steps)
        grown = _grown(source, line) if source is not None else None
        if source is None or grown is None or not (loops or _outlives_call(source, line, grown)):
            continue
        # Where no optimizer tells steps, one turn of such a loop is what repeats.
        turn = evidence.step_line is None and per_step == 1
        if not turn and (per_step < _FEWEST_TURNS or not loops):
            continue
        back = backward_of(evidence, rows)
        # One of them stays, the last, and of the derivatives as much as that one's.
        last = rows[int(per_step) - 1 :: max(1, int(per_step))] if not turn else rows[-1:]
        gone = np.setdiff1d(rows, last).tolist()
        kept = evidence.cost(last) / max(1.0, evidence.cost(rows))
        cost = evidence.cost([*rows, *back])
        if turn and cost < _WORTH * evidence.step_ns:
            continue
        runs = "once in every turn" if turn else f"{count(per_step)} times in a step"
        # What outlives a call is kept for the next ones to read.
        used = not loops or _is_used_in(loops[0], source, line, grown)
        yield Draft(
            title="A tensor grows by torch.cat in a loop, and is copied whole in each turn",
            line=line,
            evidence=[
                f"torch.cat runs {runs} on this line and takes {duration(cost)} of "
                f"{duration(evidence.step_ns)} ({percent(cost / evidence.step_ns)}).",
                *(
                    []
                    if turn
                    else [
                        f"The last of them alone takes {duration(evidence.cost(last))}: one call over all "
                        "parts would do."
                    ]
                ),
            ],
            fix="Make the tensor before the loop, as long as it will get, write each part in its place, and "
            "use the slice of it that is filled."
            if used
            else "Append the parts to a list in the loop, and call torch.cat once behind it.",
            # With a call goes the release of what it replaced, which takes its time behind it.
            edits=[*evidence.without(gone, python=0.9), *evidence.shrunk(back, kept)],
            least=[*evidence.without(gone, python=0.5), *evidence.shrunk(back, min(1.0, 2 * kept))],
            confidence="medium" if turn else "high",
        )


def _grown(source: Source, line: Line) -> str | None:
    """What is assigned on a line and among what it is made of: `x` of `x = torch.cat([x, y])`."""
    statement = source.statement(line.line)
    if not isinstance(statement, ast.Assign):
        return None
    targets = {ast.unparse(target) for target in statement.targets}
    return next(
        (
            text
            for node in ast.walk(statement.value)
            if isinstance(node, ast.expr) and (text := ast.unparse(node)) in targets
        ),
        None,
    )


def _outlives_call(source: Source, line: Line, name: str) -> bool:
    """Whether what grows on a line is there in the next call: in an object, or taken and handed back."""
    function = source.script.function_around(source.statement(line.line) or ast.Pass())
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    arguments = function.args
    taken = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    if not name.isidentifier():
        # Of an object or a container that the call did not make.
        root = name.partition(".")[0].partition("[")[0]
        made = {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        return root not in made
    handed_back = {
        node.id
        for statement in ast.walk(function)
        if isinstance(statement, ast.Return) and statement.value is not None
        for node in ast.walk(statement.value)
        if isinstance(node, ast.Name)
    }
    return name in taken & handed_back


def _is_used_in(loop: AnyLoop, source: Source, line: Line, name: str) -> bool:
    """Whether a loop reads what grows in it elsewhere than where it grows."""
    statement = source.statement(line.line)
    own = set(ast.walk(statement)) if statement is not None else set()
    return any(
        isinstance(node, ast.expr) and node not in own and ast.unparse(node) == name
        for node in ast.walk(loop)
    )


@rule("scalar-reads", "host", item="pytorch.python-loops", on="host")
def scalar_reads(evidence: Evidence) -> Iterator[Draft]:
    """Numbers that are read out of a tensor one at a time, with .item() or float()."""
    rows = forward_named(evidence, "aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
    # Lines of one loop have one repair.
    loops: dict[tuple[str, AnyLoop], dict[Line, list[int]]] = {}
    for line, reads in evidence.by_line(rows).items():
        source = evidence.source(line)
        around = source.loops(line.line, evidence.beside(line)) if source is not None else []
        if len(reads) / len(evidence.steps) >= _FEWEST_TURNS and around:
            loops.setdefault((line.file, around[0]), {})[line] = reads
    for lines in loops.values():
        gone, picked, edits, python_ns = [], 0, list[Edit](), 0.0
        only_reads = True
        for line, reads in lines.items():
            others = np.setdiff1d(evidence.by_caller.get(line, []), reads).tolist()
            picks = [row for row in others if evidence.name(row) in VIEWS]
            alone = len(picks) == len(others)
            own = [*reads, *(picks if alone else [])]
            edits += evidence.without(own, python=0.85 if alone else 0.2)
            python_ns += evidence.python_ns({line}) if alone else 0.0
            gone += own
            picked += len(picks)
            only_reads &= alone
        cost = evidence.cost(gone) + python_ns
        read = sum(map(len, lines.values())) / len(evidence.steps)
        yield Draft(
            title="Numbers are read out of a tensor one at a time",
            line=max(lines, key=lambda one: evidence.cost(lines[one])),
            evidence=[
                f"A loop reads {count(read)} single numbers from tensors in a step, on "
                f"{many(len(lines), 'line')}"
                + (f", and picks {count(picked / len(evidence.steps))} elements for it." if picked else "."),
                f"That takes {duration(cost)} of a step of {duration(evidence.step_ns)} "
                f"({percent(cost / evidence.step_ns)}).",
            ],
            fix="Read them all at once with .tolist() before the loop, or compute on the tensor and read "
            "the result.",
            edits=edits,
            confidence="high" if only_reads else "medium",
        )


_WRITES = frozenset({"aten::copy_", "aten::fill_"})
# A number of Python's is made a tensor of its own first.
_MADE_FOR_WRITES = frozenset({"aten::lift_fresh", "aten::to", "aten::empty", "aten::scalar_tensor"})
# What of it is left where a list is turned into a tensor at once.
_LISTED = 0.05


@rule("scalar-writes", "host", item="pytorch.python-loops", on="host")
def scalar_writes(evidence: Evidence) -> Iterator[Draft]:
    """Numbers that are written into a tensor one at a time, in the loop or where batches are put together."""
    trace = evidence.trace
    rows = np.intersect1d(outermost(trace, trace.of(Kind.OP)), evidence.ops())
    by_line: dict[Line, list[int]] = {}
    for row in rows[(trace.lane[rows] == main_thread(trace)) & ~evidence.in_backward[rows]].tolist():
        if (line := evidence.places.caller(row)) is not None:
            by_line.setdefault(line, []).append(row)
    for line, own in by_line.items():
        writes = [row for row in own if _writes_one(evidence, row)]
        per_step = len(writes) / len(evidence.steps)
        source = evidence.source(line)
        loops = source.loops(line.line, evidence.beside(line)) if source is not None else []
        if source is None or not loops or per_step < _FEWEST_TURNS or source.carries(loops[0]):
            continue
        others = {evidence.name(row) for row in np.setdiff1d(own, writes).tolist()}
        # What is computed on the line has to be written somewhere.
        if not others <= VIEWS | _MADE_FOR_WRITES or not _stores_by_index(source, line):
            continue
        lines = {line, Line(line.file, loops[0].lineno)}
        cost = evidence.cost(own) + evidence.python_ns(lines)
        if cost < _WORTH * evidence.step_ns:
            continue
        yield Draft(
            title="Numbers are written into a tensor one at a time",
            line=line,
            evidence=[
                f"This line writes {count(per_step)} single numbers into tensors in a step.",
                f"That takes {duration(cost)} of a step of {duration(evidence.step_ns)} "
                f"({percent(cost / evidence.step_ns)}).",
            ],
            fix="Keep the numbers in a list and make the tensor of it at once with torch.tensor(…); rows of "
            "unlike lengths go together with torch.nn.utils.rnn.pad_sequence(…, batch_first=True).",
            edits=[*evidence.shrunk(own, _LISTED), *evidence.python_shrunk(lines, 2 * _LISTED)],
            least=[*evidence.shrunk(own, 4 * _LISTED), *evidence.python_shrunk(lines, 8 * _LISTED)],
            confidence="high",
        )


def _writes_one(evidence: Evidence, row: int) -> bool:
    """Whether an operator writes a single number where another tensor has its place for it."""
    given = evidence.inputs(row)
    return evidence.name(row) in _WRITES and given.types[:1] not in ((), ("",)) and given.shapes[0] == ()


def _stores_by_index(source: Source, line: Line) -> bool:
    return any(
        isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        for node in source.nodes_on(line.line)
    )


@rule("built-in-over-tensor", "host", item="pytorch.python-loops", on="host")
def built_in_over_tensor(evidence: Evidence) -> Iterator[Draft]:
    """Python's own sum, max or min over a tensor: one operator for every element."""
    by_line = evidence.by_line(evidence.forward_ops)
    for line, rows in by_line.items():
        source = evidence.source(line)
        calls = (
            source.built_ins_on(line.line, "sum", "max", "min", "any", "all") if source is not None else []
        )
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
                f"They take {duration(cost)} of a step of {duration(evidence.step_ns)}, derivatives and "
                "Python "
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
