"""Looking for operators in a row: what a rule about a pattern needs beside the pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trackside.diagnose.chains import Match, replacement
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.rule import Draft, Family, rule
from trackside.profiling.line_stacks import Line

__all__ = [
    "FEWEST_ELEMENTS",
    "POINTWISE",
    "PRODUCTS",
    "Find",
    "drafts",
    "is_pointwise",
    "over_last",
    "pattern",
    "short_names",
]

Find = Callable[[Evidence, Sequence[int], int], Match | None]
"""Looks for a pattern that begins at a place of the forward operators."""

PRODUCTS = frozenset({"aten::matmul", "aten::bmm", "aten::mm", "aten::einsum"})
# Tensors so small are a matter of dispatch, and their whole loop of other rules.
FEWEST_ELEMENTS = 2048


def drafts(evidence: Evidence, find: Find, title: str, fix: str, said: str) -> Iterator[Draft]:
    """One draft for each line that has the pattern and is worth it."""
    rows = evidence.forward_ops
    by_line: dict[Line, list[Match]] = {}
    after = -1
    for place in range(len(rows)):
        if place <= after:
            continue
        match = find(evidence, rows, place)
        if match is None:
            continue
        line = evidence.places.line(match.rows[-1])
        if line is not None:
            by_line.setdefault(line, []).append(match)
            after = rows.index(match.rows[-1])
    for line, matches in by_line.items():
        draft = replacement(evidence, matches, line, title, fix, said)
        if draft is not None:
            yield draft


def pattern(
    name: str, family: Family, *, title: str, fix: str, said: str, item: str
) -> Callable[[Find], Find]:
    """Makes what finds a pattern a rule; `said` is how the evidence begins."""

    def register(find: Find) -> Find:
        def look(evidence: Evidence) -> Iterator[Draft]:
            return drafts(evidence, find, title, fix, said)

        look.__doc__ = find.__doc__
        rule(name, family, item)(look)
        return find

    return register


def short_names(evidence: Evidence, rows: Sequence[int]) -> list[str]:
    """Names of operators without `aten::` and the mark of in-place forms."""
    return [evidence.name(row).removeprefix("aten::").removesuffix("_") for row in rows]


_REDUCTIONS = frozenset(f"aten::{name}" for name in ("amax", "max", "mean", "std", "sum", "var"))


def over_last(evidence: Evidence, rows: Sequence[int], shape: tuple[int, ...]) -> bool:
    """Whether all reductions run over the last dimension, the one that torch's own calls take."""
    last = ("-1", str(len(shape) - 1))
    reductions = [row for row in rows if evidence.name(row) in _REDUCTIONS]
    return bool(reductions) and all(
        any(one.removeprefix("[").removesuffix("]") in last for one in evidence.inputs(row).values[1:2])
        for row in reductions
    )


POINTWISE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "square",
        "tanh",
        "erf",
        "sigmoid",
        "exp",
        "log",
        "relu",
        "neg",
        "sqrt",
        "rsqrt",
        "abs",
        "sin",
        "cos",
        "clamp",
        "clamp_min",
        "clamp_max",
        "reciprocal",
        "silu",
        "gelu",
        "softplus",
        "where",
        "maximum",
        "minimum",
        "lerp",
        "addcmul",
        "addcdiv",
        "threshold",
        "leaky_relu",
        "elu",
        "expm1",
        "log1p",
        "float_power",
        "rsub",
    ]
)


def is_pointwise(evidence: Evidence, row: int, shape: tuple[int, ...]) -> bool:
    """Whether an operator works element by element on a tensor of that shape."""
    name = evidence.name(row).removeprefix("aten::").removesuffix("_")
    return name in POINTWISE and shape in evidence.inputs(row).shapes
