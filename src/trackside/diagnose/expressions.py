"""Rules about operators in a row that torch has one call for, or a cheaper way."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from trackside.diagnose.chains import Match, forward_ops, numel, replacement, tensor_text
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.rule import Draft, rule
from trackside.profiling.line_stacks import Line

__all__: list[str] = []

Find = Callable[[Evidence, Sequence[int], int], Match | None]
"""Looks for a pattern that begins at a place of the forward operators."""

_PRODUCTS = frozenset({"aten::matmul", "aten::bmm", "aten::mm", "aten::einsum"})
# Tensors so small are a matter of dispatch, and their whole loop of other rules.
_FEWEST_ELEMENTS = 2048


def _drafts(evidence: Evidence, find: Find, title: str, fix: str, said: str) -> Iterator[Draft]:
    rows = forward_ops(evidence)
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


def _names(evidence: Evidence, rows: Sequence[int]) -> list[str]:
    return [evidence.name(row).removeprefix("aten::").removesuffix("_") for row in rows]


# -- attention ---------------------------------------------------------------------------------------


@rule("eager-attention", "arithmetic", item="attention.use-sdpa")
def eager_attention(evidence: Evidence) -> Iterator[Draft]:
    """Attention as product, softmax and product, with the whole matrix of scores in memory."""
    yield from _drafts(
        evidence,
        _attention,
        "Attention is written out: product, softmax, product",
        "Call torch.nn.functional.scaled_dot_product_attention(q, k, v), with is_causal=True in place of a triangular "
        "mask.",
        "Two products and a softmax over scores of",
    )


def _attention(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    if evidence.name(rows[place]) not in _PRODUCTS:
        return None
    query, key = evidence.shape(rows[place]), evidence.shape(rows[place], 1)
    if len(query) < 3 or len(key) != len(query) or query[-1] != key[-2]:
        return None
    scores = (*query[:-1], key[-1])
    window = rows[place : place + 9]
    names = _names(evidence, window)
    soft = next((i for i, name in enumerate(names) if name in ("softmax", "_softmax")), None)
    if soft is None or evidence.shape(window[soft]) != scores:
        return None
    for end in range(soft + 1, len(window)):
        if evidence.name(window[end]) in _PRODUCTS:
            value = evidence.shape(window[end], 1)
            if evidence.shape(window[end]) != scores or value[-2:-1] != scores[-1:]:
                return None
            masked = any(name in ("masked_fill", "where", "add") for name in names[:soft])
            kind = evidence.type(window[0])
            tensors = [tensor_text(query, kind), tensor_text((*key[:-2], key[-1], key[-2]), kind)]
            tensors.append(tensor_text(value, kind))
            mask = f"m = torch.ones({scores[-2:]}, dtype=torch.bool).tril()" if masked else "m = None"
            scored = "a @ b.transpose(-1, -2) * 0.125"
            scored = f"({scored}).masked_fill(~m, -1e9)" if masked else f"({scored})"
            return Match(
                rows=tuple(window[: end + 1]),
                tensors=tuple(tensors),
                old=f"{scored}.softmax(-1) @ c",
                new="F.scaled_dot_product_attention(a, b, c, attn_mask=m)"
                if len(query) > 3
                else "F.scaled_dot_product_attention(a[:, None], b[:, None], c[:, None], attn_mask=m)[:, 0]",
                setup=mask,
            )
    return None


# -- normalisation and activations ---------------------------------------------------------------------


@rule("hand-written-norm", "arithmetic", item="kernels.fuse-pointwise")
def hand_written_norm(evidence: Evidence) -> Iterator[Draft]:
    """Layer or RMS normalisation written out in means, squares and roots."""
    yield from _drafts(
        evidence,
        _norm,
        "A normalisation is written out in single operators",
        "Call torch.nn.functional.layer_norm (or rms_norm, where no mean is subtracted) instead.",
        "Means, squares and roots over a tensor of",
    )


def _norm(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    shape = evidence.shape(rows[place])
    if numel(shape) < _FEWEST_ELEMENTS or len(shape) < 2:
        return None
    names = _names(evidence, rows[place : place + 11])
    if names[0] not in ("mean", "pow", "square", "var", "mul", "std"):
        return None
    root = next((i for i, name in enumerate(names) if name in ("sqrt", "rsqrt", "std")), None)
    if root is None or root > 8 or not set(names[:root + 1]) & {"mean", "var", "std"}:
        return None
    if not set(names[: root + 1]) & {"pow", "square", "var", "mul", "std"}:
        return None
    end = next(
        (
            i
            for i in range(root, len(names))
            if names[i] in ("div", "mul") and evidence.shape(rows[place + i]) == shape and (i > root)
        ),
        None,
    )
    if end is None or any(numel(evidence.shape(row)) > numel(shape) for row in rows[place : place + end + 1]):
        return None
    if not _over_last(evidence, rows[place : place + end + 1], shape):
        return None
    centred = "sub" in names[: end + 1] or names[0] in ("mean", "var", "std")
    size = shape[-1]
    layer = "(a - a.mean(-1, keepdim=True)) / (a.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()"
    root_mean = "a * (a.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()"
    return Match(
        rows=tuple(rows[place : place + end + 1]),
        tensors=(tensor_text(shape, evidence.type(rows[place])),),
        old=layer if centred else root_mean,
        new=f"F.layer_norm(a, ({size},))" if centred else f"F.rms_norm(a, ({size},))",
    )


def _over_last(evidence: Evidence, rows: Sequence[int], shape: tuple[int, ...]) -> bool:
    """Whether all reductions run over the last dimension, the one that torch's own calls take."""
    wanted = ("[-1]", f"[{len(shape) - 1}]")
    reductions = [row for row in rows if evidence.name(row) in ("aten::mean", "aten::var", "aten::std", "aten::sum")]
    return bool(reductions) and all(any(one in wanted for one in evidence.inputs(row).values) for row in reductions)


@rule("hand-written-activation", "arithmetic", item="kernels.fuse-pointwise")
def hand_written_activation(evidence: Evidence) -> Iterator[Draft]:
    """GELU written out in powers, products and a tanh or erf."""
    yield from _drafts(
        evidence,
        _gelu,
        "GELU is written out in single operators",
        "Call torch.nn.functional.gelu(x), with approximate='tanh' for that form.",
        "Powers, products and a tanh or erf over a tensor of",
    )


_TANH = "0.5 * a * (1 + torch.tanh(0.7978845608 * (a + 0.044715 * a ** 3)))"
_ERF = "0.5 * a * (1 + torch.erf(a * 0.70710678))"


_GELU_CONSTANTS = {"tanh": (0.044715, 0.7978845608), "erf": (0.70710678, 1.41421356, 2.0)}


def _says_constant(evidence: Evidence, rows: Sequence[int], numbers: Sequence[float]) -> bool:
    """Whether the lines of these operators name a number of the formula's own."""
    lines = {line for row in rows if (line := evidence.places.line(row)) is not None}
    return any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, float | int)
        and any(abs(node.value - number) < 1e-4 for number in numbers)
        for line in lines
        if (source := evidence.source(line)) is not None
        for node in source.nodes_on(line.line)
    )


def _gelu(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    shape = evidence.shape(rows[place])
    if numel(shape) < _FEWEST_ELEMENTS:
        return None
    end = place
    while end < len(rows) and end < place + 11 and _is_pointwise(evidence, rows[end], shape):
        end += 1
    window = rows[place:end]
    names = _names(evidence, window)
    curve = next((name for name in ("tanh", "erf") if name in names), None)
    if curve is None or len(window) < 4 or not _says_constant(evidence, window, _GELU_CONSTANTS[curve]):
        return None
    return Match(
        rows=tuple(window),
        tensors=(tensor_text(shape, evidence.type(rows[place])),),
        old=_TANH if curve == "tanh" else _ERF,
        new=f"F.gelu(a, approximate='{'tanh' if curve == 'tanh' else 'none'}')",
    )


_POINTWISE = frozenset(
    "add sub mul div pow square tanh erf sigmoid exp log relu neg sqrt rsqrt abs sin cos clamp clamp_min clamp_max "
    "reciprocal silu gelu softplus where maximum minimum lerp addcmul addcdiv threshold leaky_relu elu expm1 log1p "
    "float_power rsub".split()
)


def _is_pointwise(evidence: Evidence, row: int, shape: tuple[int, ...]) -> bool:
    """Whether an operator works element by element on a tensor of that shape."""
    name = evidence.name(row).removeprefix("aten::").removesuffix("_")
    return name in _POINTWISE and shape in evidence.inputs(row).shapes


@rule("hand-written-softmax", "arithmetic", item="precision.softmax-norm-fp32")
def hand_written_softmax(evidence: Evidence) -> Iterator[Draft]:
    """Softmax written as exp, sum and division."""
    yield from _drafts(
        evidence,
        _softmax,
        "Softmax is written out as exp, sum and division",
        "Call torch.softmax(x, dim=-1), which also subtracts the largest value first.",
        "exp, sum and division over a tensor of",
    )


def _softmax(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    shape = evidence.shape(rows[place])
    if evidence.name(rows[place]) != "aten::exp" or numel(shape) < _FEWEST_ELEMENTS:
        return None
    names = _names(evidence, rows[place : place + 5])
    if "sum" not in names or "div" not in names[names.index("sum") :]:
        return None
    end = names.index("div")
    window = rows[place : place + end + 1]
    if evidence.shape(window[-1]) != shape or not _over_last(evidence, window, shape):
        return None
    return Match(
        rows=tuple(window),
        tensors=(tensor_text(shape, evidence.type(rows[place])),),
        old="a.exp() / a.exp().sum(-1, keepdim=True)" if names.count("exp") > 1 else
        "(lambda e: e / e.sum(-1, keepdim=True))(a.exp())",
        new="torch.softmax(a, -1)",
    )


@rule("log-of-softmax", "training", item="training.cross-entropy")
def log_of_softmax(evidence: Evidence) -> Iterator[Draft]:
    """A logarithm of a softmax, in two passes and without its stable form."""
    yield from _drafts(
        evidence,
        _log_softmax,
        "The logarithm of a softmax is taken in two operators",
        "Call torch.log_softmax(x, dim=-1), or for a loss torch.nn.functional.cross_entropy on the scores themselves.",
        "A softmax and a logarithm over a tensor of",
    )


def _log_softmax(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    shape = evidence.shape(rows[place])
    window = rows[place : place + 4]
    names = _names(evidence, window)
    if names[0] != "softmax" or "log" not in names or numel(shape) < _FEWEST_ELEMENTS:
        return None
    end = names.index("log")
    if evidence.shape(window[end]) != shape:
        return None
    kept = (window[0], window[end])
    tensor = tensor_text(shape, evidence.type(rows[place]))
    return Match(kept, (tensor,), "a.softmax(-1).log()", "torch.log_softmax(a, -1)")


# -- products ----------------------------------------------------------------------------------------


@rule("one-hot-product", "arithmetic", item="training.sparse-embeddings")
def one_hot_product(evidence: Evidence) -> Iterator[Draft]:
    """A matrix of ones and zeros multiplied with a table, to pick rows of the table."""
    yield from _drafts(
        evidence,
        _one_hot,
        "Rows of a table are picked by a product with a one-hot matrix",
        "Index the table: table[indices], or torch.nn.functional.embedding(indices, table).",
        "A one-hot matrix is made and multiplied:",
    )


def _one_hot(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    if evidence.name(rows[place]) != "aten::one_hot":
        return None
    for end in range(place + 1, min(place + 5, len(rows))):
        shape, table = evidence.shape(rows[end]), evidence.shape(rows[end], 1)
        if evidence.name(rows[end]) in _PRODUCTS and len(table) == 2 and shape[-1] == table[0]:
            count = numel(shape[:-1])
            return Match(
                rows=tuple(rows[place : end + 1]),
                tensors=(tensor_text(table, evidence.type(rows[end])),),
                old=f"F.one_hot(i, {table[0]}).to(a.dtype) @ a",
                new="F.embedding(i, a)",
                setup=f"i = torch.randint(0, {table[0]}, ({count},))",
            )
    return None


@rule("diagonal-product", "arithmetic")
def diagonal_product(evidence: Evidence) -> Iterator[Draft]:
    """A product with a diagonal matrix, which only scales rows or columns."""
    yield from _drafts(
        evidence,
        _diagonal,
        "A diagonal matrix is multiplied as if it were full",
        "Scale instead: v[:, None] * x for diag(v) @ x, and x * v for x @ diag(v).",
        "A diagonal matrix is made and multiplied:",
    )


def _diagonal(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    if evidence.name(rows[place]) not in ("aten::diag", "aten::diag_embed") or len(evidence.shape(rows[place])) != 1:
        return None
    size = evidence.shape(rows[place])[0]
    for end in range(place + 1, min(place + 4, len(rows))):
        left, right = evidence.shape(rows[end]), evidence.shape(rows[end], 1)
        if evidence.name(rows[end]) not in _PRODUCTS or len(left) != 2 or len(right) != 2:
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


@rule("inverse-product", "arithmetic")
def inverse_product(evidence: Evidence) -> Iterator[Draft]:
    """An inverse that is only multiplied: solving takes less, and is more exact."""
    yield from _drafts(
        evidence,
        _inverse,
        "A matrix is inverted only to be multiplied",
        "Solve instead: torch.linalg.solve(a, b) for inv(a) @ b.",
        "An inverse and a product:",
    )


def _inverse(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    if evidence.name(rows[place]) not in ("aten::linalg_inv", "aten::linalg_inv_ex", "aten::inverse"):
        return None
    shape = evidence.shape(rows[place])
    for end in range(place + 1, min(place + 3, len(rows))):
        right = evidence.shape(rows[end], 1)
        if evidence.name(rows[end]) in _PRODUCTS and evidence.shape(rows[end]) == shape and len(right) == len(shape):
            kind = evidence.type(rows[end])
            return Match(
                rows=(rows[place], rows[end]),
                tensors=(f"{tensor_text(shape, kind)} + {shape[-1]} * torch.eye({shape[-1]})", tensor_text(right, kind)),
                old="torch.linalg.inv(a) @ b",
                new="torch.linalg.solve(a, b)",
            )
    return None


@rule("chain-order", "arithmetic")
def chain_order(evidence: Evidence) -> Iterator[Draft]:
    """Three matrices multiplied in the order that takes more operations."""
    for draft in _drafts(
        evidence,
        _chain,
        "Three matrices are multiplied in the expensive order",
        "Put parentheses around the last two: a @ (b @ c); or call torch.linalg.multi_dot([a, b, c]).",
        "Two products in a row, the first over",
    ):
        source = evidence.source(draft.line)
        chained = _chained(source.nodes_on(draft.line.line)) if source is not None and draft.line else False
        if chained:
            yield draft


def _chained(nodes: Iterator[ast.AST]) -> bool:
    """Whether a line holds `a @ b @ c`, from the left."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.MatMult)
        and isinstance(node.left, ast.BinOp)
        and isinstance(node.left.op, ast.MatMult)
        for node in nodes
    )


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
    if then > 0.8 * now:
        return None
    kind = evidence.type(rows[place])
    tensors = tuple(tensor_text(shape, kind) for shape in (first, second, third))
    return Match((rows[place], rows[place + 1]), tensors, "(a @ b) @ c", "a @ (b @ c)")


@rule("broadcast-product", "arithmetic")
def broadcast_product(evidence: Evidence) -> Iterator[Draft]:
    """A product of two tensors blown up by broadcasting, then summed: a matrix product in disguise."""
    yield from _drafts(
        evidence,
        _broadcast,
        "A matrix product is written as a broadcast and a sum",
        "Call a matrix product: a @ b.T, or torch.einsum; the large tensor in between is never made.",
        "A broadcast product and a sum of",
    )


def _broadcast(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    shapes = evidence.inputs(rows[place]).shapes
    if evidence.name(rows[place]) != "aten::mul" or len(shapes) < 2 or place + 1 >= len(rows):
        return None
    whole = _blown_up(shapes[0], shapes[1])
    after = rows[place + 1]
    if whole is None or evidence.name(after) != "aten::sum" or evidence.shape(after) != whole:
        return None
    if not _over_last(evidence, [after], whole):
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


@rule("broadcast-distance", "arithmetic")
def broadcast_distance(evidence: Evidence) -> Iterator[Draft]:
    """Distances between all pairs by a broadcast difference, its square and a sum."""
    yield from _drafts(
        evidence,
        _distance,
        "Distances between all pairs are computed through one large tensor",
        "Call torch.cdist(a, b) (squared where the square is wanted).",
        "A broadcast difference, its square and a sum of",
    )


def _distance(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    shapes = evidence.inputs(rows[place]).shapes
    if evidence.name(rows[place]) != "aten::sub" or len(shapes) < 2 or place + 2 >= len(rows):
        return None
    whole = _blown_up(shapes[0], shapes[1])
    names = _names(evidence, rows[place : place + 3])
    if whole is None or names[1] not in ("pow", "square") or names[2] != "sum":
        return None
    if not _over_last(evidence, rows[place + 2 : place + 3], whole):
        return None
    n, m, d = whole
    kind = evidence.type(rows[place])
    return Match(
        rows=tuple(rows[place : place + 3]),
        tensors=(tensor_text((n, d), kind), tensor_text((m, d), kind)),
        old="(a[:, None] - b[None]).pow(2).sum(-1)",
        new="torch.cdist(a, b).pow(2)",
    )


# -- other -------------------------------------------------------------------------------------------


@rule("sort-for-few", "arithmetic")
def sort_for_few(evidence: Evidence) -> Iterator[Draft]:
    """A whole sort of which only the first few are used."""
    yield from _drafts(
        evidence,
        _sorted,
        "Everything is sorted, and only the first few are used",
        "Call torch.topk(x, k): it finds the largest k without sorting the rest.",
        "A sort, of which few are used, of",
    )


def _sorted(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
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


@rule("materialised-repeat", "arithmetic")
def materialised_repeat(evidence: Evidence) -> Iterator[Draft]:
    """A tensor that is repeated in memory only to be combined with another, which broadcasting does by itself."""
    yield from _drafts(
        evidence,
        _repeat,
        "A tensor is copied many times over where broadcasting would do",
        "Leave out .repeat(…) and let the operator broadcast, or use .expand(…), which copies nothing.",
        "A tensor is repeated and then combined with one of",
    )


def _repeat(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
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
    if name not in _POINTWISE or not repeats or numel(big) < _FEWEST_ELEMENTS:
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


def _repeats(values: Sequence[str]) -> tuple[int, ...]:
    text = next((value for value in values if value.startswith("[")), "")
    return tuple(int(part) for part in text.strip("[]").split(",") if part.strip().isdigit())
