"""Rules about products and orderings that need not be as large as they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from trackside.diagnose.chains import Match, numel, tensor_text
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.patterns import (
    FEWEST_ELEMENTS,
    POINTWISE,
    PRODUCTS,
    drafts,
    over_last,
    pattern,
    short_names,
)
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.source import Change, Source

__all__: list[str] = []


@pattern(
    "one-hot-product",
    "arithmetic",
    item="training.sparse-embeddings",
    title="Rows of a table are picked by a product with a one-hot matrix",
    fix="Index the table: table[indices], or torch.nn.functional.embedding(indices, table).",
    said="A one-hot matrix is made and multiplied:",
)
def _one_hot(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """A matrix of ones and zeros multiplied with a table, to pick rows of the table."""
    if evidence.name(rows[place]) != "aten::one_hot":
        return None
    for end in range(place + 1, min(place + 5, len(rows))):
        shape, table = evidence.shape(rows[end]), evidence.shape(rows[end], 1)
        if evidence.name(rows[end]) in PRODUCTS and len(table) == 2 and shape[-1] == table[0]:
            count = numel(shape[:-1])
            return Match(
                rows=tuple(rows[place : end + 1]),
                tensors=(tensor_text(table, evidence.type(rows[end])),),
                old=f"F.one_hot(i, {table[0]}).to(a.dtype) @ a",
                new="F.embedding(i, a)",
                setup=f"i = torch.randint(0, {table[0]}, ({count},))",
            )
    return None


@pattern(
    "diagonal-product",
    "arithmetic",
    item="pytorch.cheaper-operators",
    title="A diagonal matrix is multiplied as if it were full",
    fix="Scale instead: v[:, None] * x for diag(v) @ x, and x * v for x @ diag(v).",
    said="A diagonal matrix is made and multiplied:",
)
def _diagonal(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """A product with a diagonal matrix, which only scales rows or columns."""
    if (
        evidence.name(rows[place]) not in ("aten::diag", "aten::diag_embed")
        or len(evidence.shape(rows[place])) != 1
    ):
        return None
    size = evidence.shape(rows[place])[0]
    for end in range(place + 1, min(place + 4, len(rows))):
        left, right = evidence.shape(rows[end]), evidence.shape(rows[end], 1)
        if evidence.name(rows[end]) not in PRODUCTS or len(left) != 2 or len(right) != 2:
            continue
        kind = evidence.type(rows[end])
        vector = tensor_text((size,), kind)
        if left == (size, size):
            match = (tensor_text(right, kind), "torch.diag(a) @ b", "a[:, None] * b")
        elif right == (size, size):
            match = (tensor_text(left, kind), "b @ torch.diag(a)", "b * a")
        else:
            continue
        return Match(tuple(rows[place : end + 1]), (vector, match[0]), match[1], match[2])
    return None


@pattern(
    "inverse-product",
    "arithmetic",
    item="pytorch.cheaper-operators",
    title="A matrix is inverted only to be multiplied",
    fix="Solve instead: torch.linalg.solve(a, b) for inv(a) @ b.",
    said="An inverse and a product:",
)
def _inverse(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """An inverse that is only multiplied: solving takes less, and is more exact."""
    if evidence.name(rows[place]) not in ("aten::linalg_inv", "aten::linalg_inv_ex", "aten::inverse"):
        return None
    shape = evidence.shape(rows[place])
    # What it is multiplied with may be computed in between.
    for end in range(place + 1, min(place + 7, len(rows))):
        if evidence.name(rows[end]) not in PRODUCTS:
            continue
        left, right = evidence.shape(rows[end]), evidence.shape(rows[end], 1)
        if left == shape and len(right) == len(shape):
            kind = evidence.type(rows[end])
            return Match(
                rows=(rows[place], rows[end]),
                tensors=(
                    f"{tensor_text(shape, kind)} + {shape[-1]} * torch.eye({shape[-1]})",
                    tensor_text(right, kind),
                ),
                old="torch.linalg.inv(a) @ b",
                new="torch.linalg.solve(a, b)",
            )
        if (*left[:-1], *right[-1:]) == shape:
            # Another matrix of this shape, which may be what is multiplied next.
            return None
    return None


# Of the operations that there are now.
_MUCH_FEWER = 0.8


@rule("chain-order", "arithmetic", item="pytorch.cheaper-operators")
def chain_order(evidence: Evidence) -> Iterator[Draft]:
    """Three matrices multiplied in the order that takes more operations."""
    for from_left, match, first in ((True, _chain, "last"), (False, _chain_behind, "first")):
        parentheses = "a @ (b @ c)" if from_left else "(a @ b) @ c"
        for draft in drafts(
            evidence,
            match,
            "Three matrices are multiplied in the expensive order",
            f"Put parentheses around the {first} two: {parentheses}; or call "
            "torch.linalg.multi_dot([a, b, c]).",
            f"Two products in a row, {'from the left' if from_left else 'the last two factors first'}, over",
        ):
            source = evidence.source(draft.line)
            if source is None or not draft.line:
                continue
            # Of several on a line it is not known which.
            if chained := _chained(source.nodes_on(draft.line.line), from_left):
                change = _other_order(source, chained[0], from_left)
                yield replace(draft, diff=source.diff([change]) if len(chained) == 1 else None)


def _is_product(node: ast.AST) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def _chained(nodes: Iterator[ast.AST], from_left: bool) -> list[ast.BinOp]:
    """What a line holds of `a @ b @ c`, from the left, or of `a @ (b @ c)`."""
    side = "left" if from_left else "right"
    return [node for node in nodes if _is_product(node) and _is_product(getattr(node, side))]


def _other_order(source: Source, node: ast.BinOp, from_left: bool) -> Change:
    """`a @ (b @ c)` for `a @ b @ c`, and the other way round."""
    inner = node.left if from_left else node.right
    assert isinstance(inner, ast.BinOp)
    parts = (inner.left, inner.right, node.right) if from_left else (node.left, inner.left, inner.right)
    first, second, third = (source.operand_text(one) for one in parts)
    return Change(node, f"{first} @ ({second} @ {third})" if from_left else f"{first} @ {second} @ {third}")


def _chain_behind(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """A product that is the second factor of the next: an adapter's two, before the input comes."""
    if place + 1 >= len(rows) or {evidence.name(row) for row in rows[place : place + 2]} != {"aten::matmul"}:
        return None
    second, third = evidence.shape(rows[place]), evidence.shape(rows[place], 1)
    first, right = evidence.shape(rows[place + 1]), evidence.shape(rows[place + 1], 1)
    if len(second) != 2 or len(third) != 2 or not first or right != (second[0], third[1]):
        return None
    now = numel(second) * third[1] + numel(first) * third[1]
    then = numel(first) * second[1] + numel(first) // first[-1] * numel(third)
    if then > _MUCH_FEWER * now:
        return None
    kind = evidence.type(rows[place])
    tensors = tuple(tensor_text(shape, kind) for shape in (first, second, third))
    return Match((rows[place], rows[place + 1]), tensors, "a @ (b @ c)", "(a @ b) @ c")


def _chain(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    if evidence.name(rows[place]) != "aten::matmul" or place + 1 >= len(rows):
        return None
    first, second = evidence.shape(rows[place]), evidence.shape(rows[place], 1)
    left, third = evidence.shape(rows[place + 1]), evidence.shape(rows[place + 1], 1)
    if evidence.name(rows[place + 1]) != "aten::matmul" or len(first) != 2 or len(second) != 2:
        return None
    if left != (first[0], second[1]) or not 1 <= len(third) <= 2:
        return None
    width = third[1] if len(third) == 2 else 1
    now = numel(first) * second[1] + numel(left) * width
    then = numel(second) * width + numel(first) * width
    if then > _MUCH_FEWER * now:
        return None
    kind = evidence.type(rows[place])
    tensors = tuple(tensor_text(shape, kind) for shape in (first, second, third))
    return Match((rows[place], rows[place + 1]), tensors, "(a @ b) @ c", "a @ (b @ c)")


@pattern(
    "einsum-order",
    "arithmetic",
    item="pytorch.cheaper-operators",
    title="An einsum multiplies its factors in the expensive order",
    fix="Call einsum for the last two factors first, and with the first for what that gave; or install "
    "opt_einsum, with which torch.einsum finds the order by itself.",
    said="An einsum of three factors takes them from the left, the first product over",
)
def _einsum(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """An einsum of three matrices from the left, where beginning with the last takes fewer operations."""
    if evidence.name(rows[place]) != "aten::einsum":
        return None
    inner = [row for row in evidence.closure([rows[place]]).tolist() if evidence.name(row) == "aten::bmm"]
    if len(inner) != 2:
        return None
    first, second = evidence.shape(inner[0]), evidence.shape(inner[0], 1)
    whole, third = evidence.shape(inner[1]), evidence.shape(inner[1], 1)
    if any(len(shape) != 3 or shape[0] != 1 for shape in (first, second, whole, third)):
        return None
    # What the first product gave is the second's left factor as it is.
    if whole != (1, first[1], second[2]):
        return None
    now = numel(first) * second[2] + numel(whole) * third[2]
    then = numel(second) * third[2] + numel(first) * third[2]
    if then > _MUCH_FEWER * now:
        return None
    kind = evidence.type(inner[0])
    tensors = tuple(tensor_text(shape[1:], kind) for shape in (first, second, third))
    return Match((inner[0], rows[place]), tensors, "(a @ b) @ c", "a @ (b @ c)")


@pattern(
    "broadcast-product",
    "arithmetic",
    item="pytorch.cheaper-operators",
    title="A matrix product is written as a broadcast and a sum",
    fix="Call a matrix product: a @ b.T, or torch.einsum; the large tensor in between is never made.",
    said="A broadcast product and a sum of",
)
def _broadcast(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """A product of two tensors blown up by broadcasting, then summed: a matrix product in disguise."""
    shapes = evidence.inputs(rows[place]).shapes
    if evidence.name(rows[place]) != "aten::mul" or len(shapes) < 2 or place + 1 >= len(rows):
        return None
    whole = _blown_up(shapes[0], shapes[1])
    after = rows[place + 1]
    if whole is None or evidence.name(after) != "aten::sum" or evidence.shape(after) != whole:
        return None
    if not over_last(evidence, [after], whole):
        return None
    a, b = (shapes[0], shapes[1]) if shapes[0][-2] == 1 else (shapes[1], shapes[0])
    kind = evidence.type(rows[place])
    return Match(
        rows=(rows[place], after),
        tensors=(tensor_text(a, kind), tensor_text(b, kind)),
        old="(a * b).sum(-1)",
        new="(a.flatten(0, -2) @ b.flatten(0, -2).mT)",
    )


def _blown_up(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of `n×1×d` with `1×m×d`, where both are of that kind."""
    if len(one) != 3 or len(other) != 3 or one[2] != other[2] or one[2] < 2:
        return None
    first, second = (one, other) if one[1] == 1 else (other, one)
    if first[1] != 1 or second[0] != 1 or first[0] < 2 or second[1] < 2:
        return None
    return first[0], second[1], one[2]


@pattern(
    "broadcast-distance",
    "arithmetic",
    item="pytorch.cheaper-operators",
    title="Distances between all pairs are computed through one large tensor",
    fix="Call torch.cdist(a, b) (squared where the square is wanted).",
    said="A broadcast difference, its square and a sum of",
)
def _distance(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """Distances between all pairs by a broadcast difference, its square and a sum."""
    shapes = evidence.inputs(rows[place]).shapes
    if evidence.name(rows[place]) != "aten::sub" or len(shapes) < 2 or place + 2 >= len(rows):
        return None
    whole = _blown_up(shapes[0], shapes[1])
    names = short_names(evidence, rows[place : place + 3])
    if whole is None or names[1] not in ("pow", "square") or names[2] != "sum":
        return None
    if not over_last(evidence, rows[place + 2 : place + 3], whole):
        return None
    n, m, d = whole
    kind = evidence.type(rows[place])
    return Match(
        rows=tuple(rows[place : place + 3]),
        tensors=(tensor_text((n, d), kind), tensor_text((m, d), kind)),
        old="(a[:, None] - b[None]).pow(2).sum(-1)",
        new="torch.cdist(a, b).pow(2)",
    )


@pattern(
    "sort-for-few",
    "arithmetic",
    item="pytorch.cheaper-operators",
    title="Everything is sorted, and only the first few are used",
    fix="Call torch.topk(x, k): it finds the largest k without sorting the rest.",
    said="A sort, of which few are used, of",
)
def _sorted(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """A whole sort of which only the first few are used."""
    if evidence.name(rows[place]) not in ("aten::sort", "aten::argsort"):
        return None
    shape = evidence.shape(rows[place])
    for end in range(place + 1, min(place + 4, len(rows))):
        if evidence.name(rows[end]) not in ("aten::slice", "aten::narrow"):
            continue
        values = evidence.inputs(rows[end]).values
        bound = next((v for v in reversed(values[:4]) if v.lstrip("-").isdigit()), "")
        few = int(bound) if bound else -1
        if evidence.shape(rows[end]) == shape and 0 < few <= shape[-1] // 4:
            tensor = tensor_text(shape, evidence.type(rows[place]))
            return Match((rows[place],), (tensor,), "a.sort(-1, descending=True)[0]", f"a.topk({few}, -1)[0]")
    return None


@pattern(
    "materialised-repeat",
    "arithmetic",
    item="pytorch.cheaper-operators",
    title="A tensor is copied many times over where broadcasting would do",
    fix="Leave out .repeat(…) and let the operator broadcast, or use .expand(…), which copies nothing.",
    said="A tensor is repeated and then combined with one of",
)
def _repeat(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """A tensor that is repeated in memory only to be combined with another: broadcasting needs no copy."""
    if evidence.name(rows[place]) not in ("aten::repeat", "aten::tile", "aten::repeat_interleave"):
        return None
    shape = evidence.shape(rows[place])
    if place + 1 >= len(rows) or evidence.name(rows[place]) == "aten::repeat_interleave":
        return None
    after = rows[place + 1]
    name = evidence.name(after).removeprefix("aten::").removesuffix("_")
    big = max(evidence.inputs(after).shapes[:2], key=numel, default=())
    repeats = _repeats(evidence.inputs(rows[place]).values)
    padded = (1,) * (len(repeats) - len(shape)) + shape
    if name not in POINTWISE or not repeats or numel(big) < FEWEST_ELEMENTS:
        return None
    # Only what had one element along a dimension can be broadcast along it.
    if any(times > 1 and size != 1 for times, size in zip(repeats, padded, strict=True)):
        return None
    if tuple(times * size for times, size in zip(repeats, padded, strict=True)) != big:
        return None
    kind = evidence.type(rows[place])
    return Match(
        rows=(rows[place], after),
        tensors=(tensor_text(padded, kind), tensor_text(big, kind)),
        old=f"a.repeat({', '.join(map(str, repeats))}) * b",
        new="a * b",
    )


@pattern(
    "masked-elements",
    "arithmetic",
    item="pytorch.cheaper-operators",
    title="A mask picks elements, and puts them back where they were",
    fix="Compute on the whole tensor and choose: torch.where(mask, new, old). Nothing is searched for, "
    "gathered and scattered, in the derivative neither.",
    said="Elements are picked by a mask, changed and put back, of",
)
def _masked(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """Elements that a mask picks, that are changed one by one and put back where they were."""
    whole = evidence.shape(rows[place])
    if evidence.name(rows[place]) != "aten::index" or numel(whole) < FEWEST_ELEMENTS:
        return None
    if not _is_searched(evidence, rows[place]):
        return None
    changed = 0
    for end in range(place + 1, min(place + 7, len(rows))):
        shapes = evidence.inputs(rows[end]).shapes
        if evidence.name(rows[end]) == "aten::index_put_":
            picked = evidence.shape(rows[end], 2)
            # What is picked row by row is no longer than it is to be computed on.
            if shapes[:1] != (whole,) or len(picked) != 1 or not _is_searched(evidence, rows[end]):
                return None
            kind, part = evidence.type(rows[place]), picked[0] / numel(whole)
            factors = " * 1.5" * max(1, changed)
            return Match(
                rows=tuple(rows[place : end + 1]),
                tensors=(tensor_text(whole, kind),),
                old=f"torch.zeros_like(a).index_put((m,), a[m]{factors})",
                new=f"torch.where(m, a{factors}, torch.zeros_like(a))",
                setup=f"m = torch.rand({tuple(whole)}) < {part:.3f}",
            )
        name = short_names(evidence, rows[end : end + 1])[0]
        # One of both may be a number in a tensor.
        if name in POINTWISE and max(map(len, shapes), default=0) == 1:
            changed += 1
        elif name not in ("bitwise_not", "logical_not"):
            return None
    return None


def _is_searched(evidence: Evidence, row: int) -> bool:
    """Whether an index is a mask, in which the elements that are meant have to be found first."""
    return any(evidence.name(inner) == "aten::nonzero" for inner in evidence.closure([row]).tolist())


def _repeats(values: Sequence[str]) -> tuple[int, ...]:
    text = next((value for value in values if value.startswith("[")), "")
    return tuple(int(part) for part in text.strip("[]").split(",") if part.strip().isdigit())
