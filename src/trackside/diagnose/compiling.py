"""Rules about torch.compile: what is compiled again, what breaks its graphs, and what it could fuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trackside.diagnose.chains import backward_of, numel
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.patterns import is_pointwise
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.wording import count, many, percent, shape_text
from trackside.profiling.line_stacks import Line
from trackside.records.durations import duration

__all__: list[str] = []

_COMPILING = ("dynamo", "entire_frame_compile", "_compile.compile_inner (dynamo_timed)")
_REGION = "Torch-Compiled Region: "
_LOOKUPS = ("TorchDynamo Cache Lookup", "Pregraph bytecode")
# Smaller tensors stay in a core's cache between two operators: there is little to win.
_LARGE = 1 << 18
_FEWEST = 3


@rule("recompiling", "compile", item="compilation.mark-dynamic")
def recompiling(evidence: Evidence) -> Iterator[Draft]:
    """Functions that torch.compile compiles again in steady steps."""
    rows = evidence.ops(*_COMPILING)
    rows = rows[evidence.outer[rows] == rows]
    if not len(rows):
        return
    cost = evidence.cost(rows)
    by_line = evidence.by_line(rows)
    line = max(by_line, key=lambda one: len(by_line[one]), default=None)
    yield Draft(
        title="A function is compiled again and again",
        line=line,
        evidence=[
            f"After the warm-up torch.compile still compiled {len(rows)} times in {len(evidence.steps)} "
            "steps: "
            f"{duration(cost)} of a step of {duration(evidence.step_ns)} "
            f"({percent(cost / evidence.step_ns)}).",
        ],
        fix="Keep what is compiled for the same: pad shapes to a few sizes, mark those that vary with "
        "torch._dynamo.mark_dynamic, leave out dynamic=False, and pass changing numbers as tensors. "
        "TORCH_LOGS=recompiles says which guard failed.",
        edits=evidence.without(rows, python=0.9),
        confidence="high",
    )


@rule("graph-break", "compile", item="compilation.graph-breaks")
def graph_break(evidence: Evidence) -> Iterator[Draft]:
    """A compiled function that is cut into pieces by something its graph cannot hold."""
    # The rest of the function is a region of its own, inside the one that was left.
    rest = [
        row
        for row in evidence.ops().tolist()
        if evidence.name(row).startswith(_REGION) and evidence.under(row, _REGION)
    ]
    for line, regions in evidence.by_line(rest).items():
        lookups = [row for row in evidence.ops(*_LOOKUPS).tolist() if evidence.places.caller(row) == line]
        cost = evidence.cost(lookups) + evidence.python_ns({line})
        yield Draft(
            title="A compiled function is cut into pieces",
            line=line,
            evidence=[
                f"{many(len(regions) / len(evidence.steps), 'time')} in a step a compiled function leaves "
                "its graph on this line "
                f"and enters another; that takes {duration(cost)} of {duration(evidence.step_ns)} "
                f"({percent(cost / evidence.step_ns)}), and nothing is fused across the cut.",
            ],
            fix="Take what the graph cannot hold out of the function; torch.compile(…, fullgraph=True) "
            "names each such place.",
            edits=[*evidence.without(lookups), *evidence.python_shrunk({line}, 0.1)],
            spread=0.45,
            confidence="low",
        )


@rule(
    "pointwise-chain",
    "compile",
    item="kernels.fuse-pointwise",
    yields_to=("hand-written-activation", "hand-written-norm", "hand-written-softmax"),
)
def pointwise_chain(evidence: Evidence) -> Iterator[Draft]:
    """Several operators in a row that each read and write the same large tensor."""
    rows = evidence.forward_ops
    chains: list[list[int]] = []
    place = 0
    while place < len(rows):
        shape = evidence.shape(rows[place])
        end = place
        while end < len(rows) and is_pointwise(evidence, rows[end], shape):
            end += 1
        if numel(shape) >= _LARGE and end - place >= _FEWEST:
            chains.append(rows[place:end])
        place = max(end, place + 1)
    by_line: dict[Line, list[list[int]]] = {}
    for chain in chains:
        line = evidence.places.line(chain[-1])
        if line is not None:
            by_line.setdefault(line, []).append(chain)
    for line, own in by_line.items():
        yield from _fused(evidence, line, own)


def _fused(evidence: Evidence, line: Line, chains: Sequence[Sequence[int]]) -> Iterator[Draft]:
    every = [row for chain in chains for row in chain]
    back = backward_of(evidence, every)
    cost = evidence.cost([*every, *back])
    if cost < 0.05 * evidence.step_ns:
        return
    length = len(every) / len(chains)
    shape = evidence.shape(chains[0][0])
    moved = sum(_tensors(evidence, row, shape) + 1 for row in chains[0])
    # Fused, the first input is read and the last result written; what else is read stays.
    left = min(1.0, max(2.0, moved - 2 * (length - 1)) / moved)
    yield Draft(
        title=f"{count(length)} operators in a row read and write the same large tensor",
        line=line,
        evidence=[
            f"They move a tensor of {shape_text(shape)} {moved} times where {max(2, round(moved * left))} "
            "would do, and take "
            f"{duration(cost)} of a step of {duration(evidence.step_ns)} "
            f"({percent(cost / evidence.step_ns)}), derivatives "
            "included.",
        ],
        fix="Put them into one function and compile it: @torch.compile; or use in-place forms where "
        "autograd allows.",
        edits=evidence.shrunk([*every, *back], min(1.0, left + 0.15)),
        least=evidence.shrunk([*every, *back], min(1.0, left + 0.4)),
        most=evidence.shrunk([*every, *back], left),
        confidence="low",
    )


def _tensors(evidence: Evidence, row: int, shape: tuple[int, ...]) -> int:
    return sum(one == shape for one in evidence.inputs(row).shapes)
