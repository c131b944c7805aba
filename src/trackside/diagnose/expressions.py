"""Rules about operators in a row that torch has one call for, or a cheaper way."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from trackside.diagnose.chains import VIEWS, Match, numel, tensor_text
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.patterns import (
    FEWEST_ELEMENTS,
    PRODUCTS,
    is_pointwise,
    over_last,
    pattern,
    short_names,
)

__all__: list[str] = []


def _side_by_side(shape: Sequence[int], kind: str) -> str:
    batch, heads, length, size = shape
    return f"{tensor_text((batch, length, heads, size), kind)}.transpose(1, 2)"


def _factors(evidence: Evidence, row: int, batch: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of what a product multiplies; einsum's own are in none of its events, so those of its bmm.

    Args:
        batch: what einsum has made one dimension of.
    """
    if evidence.name(row) != "aten::einsum":
        return evidence.shape(row), evidence.shape(row, 1)
    inner = next((one for one in evidence.closure([row]) if evidence.name(one) == "aten::bmm"), None)
    if inner is None:
        return (), ()
    left, right = evidence.shape(inner), evidence.shape(inner, 1)
    if left[:1] != (numel(batch),) or right[:1] != left[:1]:
        return (), ()
    return (*batch, *left[1:]), (*batch, *right[1:])


@pattern(
    "eager-attention",
    "arithmetic",
    item="attention.use-sdpa",
    title="Attention is written out: product, softmax, product",
    fix="Call torch.nn.functional.scaled_dot_product_attention(q, k, v), with is_causal=True in place "
    "of a triangular mask.",
    said="Two products and a softmax over scores of",
)
def _attention(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """Attention as product, softmax and product, with the whole matrix of scores in memory."""
    if evidence.name(rows[place]) not in PRODUCTS:
        return None
    window = rows[place : place + 9]
    names = short_names(evidence, window)
    soft = next((i for i, name in enumerate(names) if name in ("softmax", "_softmax")), None)
    if soft is None:
        return None
    scores = evidence.shape(window[soft])
    query, key = _factors(evidence, window[0], scores[:-2])
    if len(query) < 3 or len(key) != len(query) or query[-1] != key[-2]:
        return None
    if scores != (*query[:-1], key[-1]):
        return None
    for end in range(soft + 1, len(window)):
        if evidence.name(window[end]) in PRODUCTS:
            weights, value = _factors(evidence, window[end], scores[:-2])
            if weights != scores or value[-2:-1] != scores[-1:]:
                return None
            masked = any(name in ("masked_fill", "where", "add") for name in names[:soft])
            kind = evidence.type(window[soft])
            # Heads that lie side by side, as a projection leaves them, are copied before each product.
            copied = len(query) == 4 and any(
                evidence.name(row) == "aten::copy_" for row in evidence.closure(window[:1])
            )
            text = _side_by_side if copied else tensor_text
            tensors = [text(query, kind), text((*key[:-2], key[-1], key[-2]), kind), text(value, kind)]
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


@pattern(
    "hand-written-norm",
    "arithmetic",
    item="kernels.fuse-pointwise",
    title="A normalisation is written out in single operators",
    fix="Call torch.nn.functional.layer_norm (or rms_norm, where no mean is subtracted) instead.",
    said="Means, squares and roots over a tensor of",
)
def _norm(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """Layer or RMS normalisation written out in means, squares and roots."""
    shape = evidence.shape(rows[place])
    if numel(shape) < FEWEST_ELEMENTS or len(shape) < 2:
        return None
    names = short_names(evidence, rows[place : place + 11])
    if names[0] not in ("mean", "pow", "square", "var", "mul", "std"):
        return None
    root = next((i for i, name in enumerate(names) if name in ("sqrt", "rsqrt", "std")), None)
    if root is None or root > 8 or not set(names[: root + 1]) & {"mean", "var", "std"}:
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
    if not over_last(evidence, rows[place : place + end + 1], shape):
        return None
    centred = "sub" in names[: end + 1] or names[0] in ("mean", "var", "std")
    size = shape[-1]
    # As it is written: on a CPU `var` takes twice what the mean of squares does.
    if {"var", "std"} & set(names[: end + 1]):
        layer = "(a - a.mean(-1, keepdim=True)) / (a.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()"
    else:
        layer = (
            "(lambda c: c / (c.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt())(a - a.mean(-1, keepdim=True))"
        )
    root_mean = "a * (a.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()"
    return Match(
        rows=tuple(rows[place : place + end + 1]),
        tensors=(tensor_text(shape, evidence.type(rows[place])),),
        old=layer if centred else root_mean,
        new=f"F.layer_norm(a, ({size},))" if centred else f"F.rms_norm(a, ({size},))",
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


@pattern(
    "hand-written-activation",
    "arithmetic",
    item="kernels.fuse-pointwise",
    title="GELU is written out in single operators",
    fix="Call torch.nn.functional.gelu(x), with approximate='tanh' for that form.",
    said="Powers, products and a tanh or erf over a tensor of",
)
def _gelu(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """GELU written out in powers, products and a tanh or erf."""
    shape = evidence.shape(rows[place])
    if numel(shape) < FEWEST_ELEMENTS:
        return None
    end = place
    while end < len(rows) and end < place + 11 and is_pointwise(evidence, rows[end], shape):
        end += 1
    names = short_names(evidence, rows[place:end])
    curve = next((name for name in ("tanh", "erf") if name in names), None)
    # Behind the curve come one and a product or two.
    last = names.index(curve) if curve is not None else 0
    while last + 1 < min(len(names), names.index(curve) + 4 if curve else 0) and names[last + 1] in (
        "add",
        "mul",
        "div",
    ):
        last += 1
    window = rows[place : place + last + 1]
    if curve is None or len(window) < 4 or not _says_constant(evidence, window, _GELU_CONSTANTS[curve]):
        return None
    return Match(
        rows=tuple(window),
        tensors=(tensor_text(shape, evidence.type(rows[place])),),
        old=_TANH if curve == "tanh" else _ERF,
        new=f"F.gelu(a, approximate='{'tanh' if curve == 'tanh' else 'none'}')",
    )


# Of code that subtracts the largest value: what is done before the exponential.
_SHIFTED = (("amax", "sub"), ("max", "sub"))


@pattern(
    "hand-written-softmax",
    "arithmetic",
    item="precision.softmax-norm-fp32",
    title="Softmax is written out as exp, sum and division",
    fix="Call torch.softmax(x, dim=-1), which also subtracts the largest value first.",
    said="exp, sum and division over a tensor of",
)
def _softmax(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """Softmax written as exp, sum and division, with or without the largest value subtracted first."""
    shape = evidence.shape(rows[place])
    if numel(shape) < FEWEST_ELEMENTS:
        return None
    # `detach` of the largest value, and other views, move nothing.
    window = [row for row in rows[place : place + 9] if evidence.name(row) not in VIEWS][:7]
    names = short_names(evidence, window)
    shifted = tuple(names[:2]) in _SHIFTED
    raised = 2 if shifted else 0
    if names[raised : raised + 1] != ["exp"] or evidence.shape(window[raised]) != shape:
        return None
    if "sum" not in names[raised:] or "div" not in names[names.index("sum") :]:
        return None
    end = names.index("div", names.index("sum"))
    window = window[: end + 1]
    if evidence.shape(window[-1]) != shape or not over_last(evidence, window, shape):
        return None
    taken = "a - a.amax(-1, keepdim=True)" if names[0] == "amax" else "a - a.max(-1, keepdim=True).values"
    inner = taken if shifted else "a"
    return Match(
        rows=tuple(window),
        tensors=(tensor_text(shape, evidence.type(window[0])),),
        old=f"(lambda s: s.exp() / s.exp().sum(-1, keepdim=True))({inner})"
        if names[: end + 1].count("exp") > 1
        else f"(lambda e: e / e.sum(-1, keepdim=True))(({inner}).exp())",
        new="torch.softmax(a, -1)",
    )


@pattern(
    "log-of-softmax",
    "training",
    item="training.cross-entropy",
    title="The logarithm of a softmax is taken in two operators",
    fix="Call torch.log_softmax(x, dim=-1), or for a loss torch.nn.functional.cross_entropy on the "
    "scores themselves.",
    said="A softmax and a logarithm over a tensor of",
)
def _log_softmax(evidence: Evidence, rows: Sequence[int], place: int) -> Match | None:
    """A logarithm of a softmax, in two passes and without its stable form."""
    shape = evidence.shape(rows[place])
    window = rows[place : place + 4]
    names = short_names(evidence, window)
    if names[0] != "softmax" or "log" not in names or numel(shape) < FEWEST_ELEMENTS:
        return None
    end = names.index("log")
    if evidence.shape(window[end]) != shape:
        return None
    kept = (window[0], window[end])
    tensor = tensor_text(shape, evidence.type(rows[place]))
    return Match(kept, (tensor,), "a.softmax(-1).log()", "torch.log_softmax(a, -1)")
