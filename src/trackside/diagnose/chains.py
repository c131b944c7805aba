"""Operators of the forward pass in a row, replacements of several by one, and what those would take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trackside.diagnose.evidence import Evidence
from trackside.diagnose.rule import Draft
from trackside.diagnose.wording import many, percent, shape_text
from trackside.diagnose.workbench import Ratio
from trackside.profiling.line_stacks import Line
from trackside.records.durations import duration

__all__ = [
    "VIEWS",
    "Match",
    "backward_of",
    "bench",
    "dtype_text",
    "forward_named",
    "numel",
    "replacement",
    "tensor_text",
]

VIEWS = frozenset(
    f"aten::{name}"
    for name in [
        "view",
        "reshape",
        "select",
        "slice",
        "unsqueeze",
        "squeeze",
        "transpose",
        "permute",
        "t",
        "expand",
        "unbind",
        "narrow",
        "split",
        "chunk",
        "as_strided",
        "detach",
        "alias",
        "expand_as",
        "view_as",
        "flatten",
        "unflatten",
        "mT",
        "numpy_T",
        "T",
        "movedim",
        "swapaxes",
        "_unsafe_view",
        "split_with_sizes",
        "size",
        "stride",
        "is_floating_point",
    ]
)
"""Operators that move no data (as a rule)."""
_DTYPES = {
    "float": "torch.float32",
    "double": "torch.float64",
    "c10::BFloat16": "torch.bfloat16",
    "c10::Half": "torch.float16",
}
# A replacement that saves less on the workbench may save nothing.
_WORTH = 0.9


@dataclass(frozen=True)
class Match:
    """Operators that one call could stand for, and both ways in words that the workbench can run."""

    rows: tuple[int, ...]
    tensors: tuple[str, ...]
    """Constructors of the inputs, from `tensor_text`."""
    old: str
    """An expression of `a`, `b`, `c`, … the inputs."""
    new: str
    setup: str = ""


def numel(shape: Sequence[int]) -> int:
    return math.prod(shape)


def dtype_text(kind: str) -> str:
    """torch's name of a type as traces call it."""
    return _DTYPES.get(kind, "torch.float32")


def tensor_text(shape: Sequence[int], kind: str = "float") -> str:
    """What makes a like tensor."""
    return f"torch.rand({tuple(shape)}).to({dtype_text(kind)}).add_(0.1)"


def forward_named(evidence: Evidence, *names: str) -> list[int]:
    """Those of the forward operators that have one of these names."""
    wanted = set(names)
    return [row for row in evidence.forward_ops if evidence.name(row) in wanted]


def backward_of(evidence: Evidence, rows: Iterable[int]) -> list[int]:
    """The derivatives of operators: the outermost rows of each."""
    derivatives = evidence.derivatives
    return sorted({row for inner in evidence.closure(rows).tolist() for row in derivatives.get(inner, ())})


def bench(evidence: Evidence, match: Match, grads: bool, calls: int = 1) -> Ratio | None:
    """What the new way takes of the old way's time, with derivatives where the program takes them.

    Args:
        calls: as how many calls of the old way the match's rows count.
    """
    if evidence.workbench is None:
        return None
    letters = "abcdefgh"[: len(match.tensors)]
    arguments = ", ".join(letters)
    setup = (
        f"{match.setup}\nxs = [{', '.join(match.tensors)}]\n"
        f"def old({arguments}): return {match.old}\ndef new({arguments}): return {match.new}\n"
    )
    rows = [*match.rows, *backward_of(evidence, match.rows)] if grads else match.rows
    took = evidence.cost(rows) * len(evidence.steps) / calls
    if not grads:
        setup += "torch.set_grad_enabled(False)"
        return evidence.workbench.ratio(setup, "old(*xs)", "new(*xs)", old_ns=took)
    setup += (
        "torch.set_grad_enabled(True)\nfor x in xs: x.requires_grad_(x.is_floating_point())\n"
        "leaves = [x for x in xs if x.requires_grad]\ng = torch.ones_like(old(*xs).detach())\n"
    )
    arm = "torch.autograd.grad({}(*xs), leaves, g)"
    return evidence.workbench.ratio(setup, arm.format("old"), arm.format("new"), old_ns=took)


def replacement(
    evidence: Evidence,
    matches: Sequence[Match],
    line: Line,
    title: str,
    fix: str,
    said: str,
    diff: str | None = None,
) -> Draft | None:
    """A draft for all matches of one line, priced on the workbench by the costliest; None if not worth it.

    Args:
        said: what was seen, for the evidence: "five operators over a tensor of".
    """
    rows = sorted({row for match in matches for row in match.rows})
    back = backward_of(evidence, rows)
    example = max(matches, key=lambda match: evidence.cost(match.rows))
    ratio = bench(evidence, example, grads=bool(back))
    if ratio is None or ratio.best > _WORTH:
        return None
    cost = evidence.cost([*rows, *back])
    shape = max((evidence.shape(row) for row in example.rows), key=numel)
    times = len(matches) / len(evidence.steps)
    backwards = f", {duration(evidence.cost(back))} of it in their derivatives" if back else ""
    return Draft(
        title=title,
        line=line,
        evidence=[
            f"{said} {shape_text(shape)}, {many(times, 'time')} a step.",
            f"They take {duration(cost)} of a step of {duration(evidence.step_ns)} "
            f"({percent(cost / evidence.step_ns)}){backwards}.",
            f"At these shapes the one call was measured here to take {ratio}.",
        ],
        fix=fix,
        edits=evidence.shrunk([*rows, *back], ratio),
        confidence="high" if ratio.surely < 0.6 else "medium",
        diff=diff,
    )
