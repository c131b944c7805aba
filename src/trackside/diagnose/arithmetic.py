"""Rules about how numbers are computed: types, layouts, and small products that could be one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trackside.diagnose.chains import (
    Match,
    backward_of,
    bench,
    forward_named,
    numel,
    replacement,
    tensor_text,
)
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.source import Change
from trackside.diagnose.wording import many, percent, shape_text
from trackside.diagnose.workbench import Ratio
from trackside.profiling.line_stacks import Line
from trackside.records.durations import duration
from trackside.trace.edits import Edit, Scale
from trackside.trace.model import Kind
from trackside.trace.timeline import outermost

__all__: list[str] = []

_PRODUCTS = frozenset(
    {"aten::matmul", "aten::bmm", "aten::mm", "aten::linear", "aten::addmm", "aten::baddbmm", "aten::einsum"}
)
_INNER_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_LOOPED = frozenset({"aten::matmul", "aten::mm", "aten::linear"})
_FEWEST_PRODUCTS = 8
# A product is small with so many multiplications on a processor, or so much time on a device.
_SMALL_WORK, _SMALL_NS = 1 << 22, 20_000
# Products that are timed under one autocast: with more of them entering it no longer counts.
_MOST_CAST = 16
# So many unlike operators on images are timed in channels_last.
_MOST_ON_IMAGES = 5
# Half of the bytes, where nothing was timed.
_USUAL_SINGLE = Ratio(0.5, 0.5)


@rule("float64", "arithmetic", item="precision.float64")
def float64(evidence: Evidence) -> Iterator[Draft]:
    """Arithmetic in float64, where float32 takes half of the memory and less than half of the time."""
    trace = evidence.trace
    rows = np.intersect1d(outermost(trace, trace.of(Kind.OP)), evidence.ops()).tolist()
    double = [row for row in rows if _is_double(evidence, row)]
    cost = evidence.cost(double)
    if not double or cost < 0.05 * evidence.step_ns:
        return
    products = [row for row in evidence.ops(*_INNER_PRODUCTS).tolist() if _is_double(evidence, row)]
    factor = _single_ratio(evidence, products)
    edits: list[Edit] = []
    if products:
        edits += evidence.shrunk(products, factor)
    rest = np.setdiff1d(evidence.tasks(double), evidence.tasks(products))
    # What moves bytes moves half of them; a call's own cost stays.
    edits.append(Scale(rest, 0.6))
    by_line = evidence.by_line(double)
    line = max(by_line, key=lambda one: evidence.cost(by_line[one]), default=None)
    yield Draft(
        title="Numbers are computed in float64",
        line=line,
        evidence=[
            f"{many(len(double) / len(evidence.steps), 'operator')} of a step on float64: "
            f"{duration(cost)} of {duration(evidence.step_ns)} ({percent(cost / evidence.step_ns)}).",
            *([f"The largest product was measured here to take {factor} in float32."] if products else []),
        ],
        fix="Make tensors in float32: drop dtype=torch.float64 and .double(), and convert what comes from "
        "NumPy with "
        ".float() once.",
        edits=edits,
        confidence="medium",
    )


def _is_double(evidence: Evidence, row: int) -> bool:
    given = evidence.inputs(row)
    return any(
        kind == "double" and numel(shape) >= 256
        for kind, shape in zip(given.types, given.shapes, strict=False)
        if shape
    )


def _single_ratio(evidence: Evidence, products: Sequence[int]) -> Ratio:
    """What a product takes in float32 of its time in float64."""
    if not products or evidence.workbench is None:
        return _USUAL_SINGLE
    row = max(products, key=lambda one: int(evidence.trace.duration[one]))
    shapes = [shape for shape in evidence.inputs(row).shapes if len(shape) >= 2][:2]
    if len(shapes) < 2:
        return _USUAL_SINGLE
    setup = f"a, b = torch.rand({shapes[0]}), torch.rand({shapes[1]}); c, d = a.double(), b.double()"
    return evidence.workbench.ratio(setup, "c @ d", "a @ b") or _USUAL_SINGLE


@rule("looped-products", "arithmetic", item="pytorch.python-loops")
def looped_products(evidence: Evidence) -> Iterator[Draft]:
    """Many small products of like matrices in a loop, where one product would do."""
    rows = [row for row in evidence.forward_ops if evidence.name(row) in _LOOPED]
    for line, products in evidence.by_line(rows).items():
        source = evidence.source(line)
        loops = source.loops(line.line, evidence.beside(line)) if source is not None else []
        per_step = len(products) / len(evidence.steps)
        if source is None or not loops or per_step < _FEWEST_PRODUCTS or source.carries(loops[0]):
            continue
        own_rows = evidence.by_caller.get(line, products)
        if not evidence.turns_in_a_step(line, loops[0].lineno, own_rows):
            continue
        left, right = evidence.shape(products[0]), evidence.shape(products[0], 1)
        alike = all((evidence.shape(row), evidence.shape(row, 1)) == (left, right) for row in products)
        if not alike or len(left) not in (1, 2) or len(right) != 2:
            continue
        if not _is_small(evidence, products):
            continue
        times = round(per_step)
        linear = {evidence.name(row) for row in products} == {"aten::linear"}
        same = linear or source.keeps_second_factor(loops[0], line.line)
        if not same and len(left) != 2:
            continue
        match = _at_once(tuple(products), times, left, right, evidence.type(products[0]), same, linear)
        back = backward_of(evidence, products)
        ratio = bench(evidence, match, grads=bool(back), calls=len(evidence.steps))
        own = {line, *(Line(line.file, loop.lineno) for loop in loops[:1])}
        inner = [row for row in evidence.forward_ops if evidence.places.caller(row) in own]
        back = backward_of(evidence, inner)
        cost = evidence.cost([*inner, *back]) + evidence.python_ns(own)
        if ratio is None or ratio.best > 0.9:
            continue
        yield Draft(
            title=f"{times} small products run one after the other",
            line=line,
            evidence=[
                f"{times} products of {shape_text(left)} with {shape_text(right)} run on this line in a "
                "step; with what "
                f"is around them they take {duration(cost)} of {duration(evidence.step_ns)} "
                f"({percent(cost / evidence.step_ns)}).",
                f"One product for all was measured here to take {ratio}.",
            ],
            fix=_at_once_fix(source.product_at_once(loops[0], line.line), same),
            edits=[
                *evidence.shrunk([*inner, *back], ratio),
                *evidence.python_shrunk(own, ratio.host),
            ],
            confidence="high" if ratio.computing < 0.5 else "medium",
        )


def _at_once_fix(typed: str | None, same: bool) -> str:
    if typed is not None:
        stacked = "its result holds what the turns gave, along the first dimension"
        return f"In place of the loop multiply all at once: {typed} ({stacked})."
    if same:
        return (
            "Multiply all at once: the matrix behind is the same in every turn, so the call can have all "
            "that the loop goes over."
        )
    return "Stack the matrices along a first dimension and call torch.bmm, or @ on the stacks."


def _is_small(evidence: Evidence, products: Sequence[int]) -> bool:
    """Whether calling a product matters beside computing it: a batch of a loop over batches is not small."""
    if evidence.has_device:
        device = np.intersect1d(evidence.closure(products), evidence.trace.on_device)
        return float(evidence.trace.duration[device].sum()) <= _SMALL_NS * len(products)
    left, right = evidence.shape(products[0]), evidence.shape(products[0], 1)
    return numel(left) * numel(right) // left[-1] <= _SMALL_WORK


def _at_once(
    rows: tuple[int, ...],
    times: int,
    left: tuple[int, ...],
    right: tuple[int, ...],
    kind: str,
    same: bool,
    linear: bool,
) -> Match:
    """Products of a loop against one; `same` where all have one matrix behind them."""
    stacks = tensor_text((times, *left), kind)
    if linear:
        each, new = "F.linear(a[i], b)", "F.linear(a, b)"
    elif same:
        each, new = "a[i] @ b", "a @ b"
    else:
        each, new = "a[i] @ b[i]", "torch.bmm(a, b)"
    return Match(
        rows=rows,
        tensors=(stacks, tensor_text(right if same else (times, *right), kind)),
        old=f"torch.stack([{each} for i in range({times})])",
        new=new,
    )


@rule("copy-before-product", "arithmetic", item="pytorch.channels-last")
def copy_before_product(evidence: Evidence) -> Iterator[Draft]:
    """A transposed matrix copied with .contiguous() before a product, which reads either layout."""
    rows = evidence.forward_ops
    found: dict[Line, list[Match]] = {}
    for place, row in enumerate(rows[:-1]):
        shape = evidence.shape(row)
        if evidence.name(row) not in ("aten::contiguous", "aten::clone") or len(shape) != 2:
            continue
        following = rows[place + 1 : place + 3]
        product = next((one for one in following if evidence.name(one) in _PRODUCTS), None)
        line = evidence.places.line(row)
        if product is None or line is None or len(evidence.closure([row])) < 2:
            continue
        other = evidence.shape(product, 1)
        source = evidence.source(line)
        if evidence.shape(product) != shape or len(other) != 2 or source is None:
            continue
        if source.methods_on(line.line, "contiguous"):
            kind = evidence.type(row)
            found.setdefault(line, []).append(
                Match(
                    rows=(row, product),
                    tensors=(tensor_text((shape[1], shape[0]), kind), tensor_text(other, kind)),
                    old="a.t().contiguous() @ b",
                    new="a.t() @ b",
                )
            )
    for line, matches in found.items():
        source = evidence.source(line)
        calls = source.methods_on(line.line, "contiguous") if source is not None else []
        dropped = (
            [
                Change(call.node, source.operand_text(call.node.func.value))  # type: ignore[attr-defined]
                for call in calls
            ]
            if source is not None
            else []
        )
        draft = replacement(
            evidence,
            matches,
            line,
            "A matrix is copied into another layout before a product",
            "Leave out .contiguous(): a product reads transposed matrices as they lie.",
            "A copy and a product of",
            diff=source.diff(dropped) if source is not None and dropped else None,
        )
        if draft is not None:
            yield draft


@rule("bfloat16-products", "arithmetic", item="precision.bf16-autocast", on="host")
def bfloat16_products(evidence: Evidence) -> Iterator[Draft]:
    """Products in float32 on a processor that was measured to be faster in bfloat16."""
    kept = [row for row in evidence.forward_ops if _is_kept_by_autocast(evidence.name(row))]
    products = np.setdiff1d(evidence.ops(*_INNER_PRODUCTS), evidence.closure(kept)).tolist()
    rows = [row for row in products if "float" in evidence.inputs(row).types]
    cost = evidence.cost(rows)
    if cost < 0.2 * evidence.step_ns or evidence.workbench is None:
        return
    forward = [row for row in rows if not evidence.in_backward[row]] or rows
    # One step's products as they come: autocast is entered once for all, and a small one gains nothing.
    once = forward[: max(1, len(forward) // len(evidence.steps))]
    several = [pair for row in once if len(pair := _matrices(evidence, row)) == 2][:_MOST_CAST]
    if not several:
        return
    a, b = max(several, key=_operations)
    made = ", ".join(f"(torch.rand({one}), torch.rand({other}))" for one, other in several)
    turns = "for a, b in pairs: a @ b"
    measured = evidence.workbench.ratio(
        f"torch.set_grad_enabled(False); pairs = [{made}]",
        turns,
        f"with torch.autocast('cpu', dtype=torch.bfloat16):\n    {turns}",
    )
    if measured is None or measured.host > 0.75:
        return
    ratio = measured.host
    by_line = evidence.by_line(rows)
    line = max(by_line, key=lambda one: evidence.cost(by_line[one]), default=None)
    careful = min(1.0, ratio + 0.3 * (1 - ratio))
    yield Draft(
        title="Products run in float32, and this processor is faster in bfloat16",
        line=line,
        evidence=[
            f"Products in float32 take {duration(cost)} of a step of {duration(evidence.step_ns)} "
            f"({percent(cost / evidence.step_ns)}).",
            f"{many(len(several), 'product')} of a step, the largest of {shape_text(a)} with "
            f"{shape_text(b)}, took {percent(ratio)} of the time here under autocast in bfloat16, "
            "conversions included.",
        ],
        fix="Run the forward pass under torch.autocast('cpu', dtype=torch.bfloat16), and compare the loss "
        "with float32's.",
        edits=evidence.shrunk(rows, careful),
        least=evidence.shrunk(rows, min(1.0, ratio + 0.6 * (1 - ratio))),
        most=evidence.shrunk(rows, ratio),
        confidence="low",
    )


def _is_kept_by_autocast(name: str) -> bool:
    """Whether autocast computes an operator in float32 on a CPU, products that it is made of included."""
    lowered = ("aten::linalg_multi_dot", "aten::linalg_vecdot")
    return name in ("aten::cdist", "aten::pinverse") or (
        name.startswith("aten::linalg_") and name not in lowered
    )


def _matrices(evidence: Evidence, row: int) -> tuple[tuple[int, ...], ...]:
    return tuple(shape for shape in evidence.inputs(row).shapes if len(shape) >= 2)[-2:]


def _operations(shapes: Sequence[tuple[int, ...]]) -> int:
    return numel(shapes[0]) * shapes[1][-1] if len(shapes) == 2 else 0


@rule("channels-first", "arithmetic", item="pytorch.channels-last", on="host")
def channels_first(evidence: Evidence) -> Iterator[Draft]:
    """Convolutions over images that lie channel by channel, where this machine is faster pixel by pixel."""
    if evidence.workbench is None or any(
        _says_channels_last(source.script.nodes) for source in evidence.sources.values()
    ):
        return
    alike: dict[str, list[int]] = {}
    for row in forward_named(evidence, "aten::conv2d", "aten::max_pool2d"):
        made = _on_images(evidence, row)
        if made is not None:
            alike.setdefault(made, []).append(row)
    largest = sorted(alike, key=lambda made: evidence.cost(alike[made]), reverse=True)[:_MOST_ON_IMAGES]
    if not any("conv2d" in made for made in largest):
        return
    timed: list[int] = []
    before = after = 0.0
    told = []
    for made in largest:
        rows = alike[made]
        back = backward_of(evidence, rows)
        ratio = _channels_last_ratio(evidence, rows[0], made, bool(back))
        if ratio is None:
            continue
        cost = evidence.cost([*rows, *back])
        before, after = before + cost, after + cost * ratio.host
        timed += [*rows, *back]
        word = "Pooling" if "pool" in made else "A convolution"
        told.append(
            f"{word} over {shape_text(evidence.shape(rows[0]))} ({percent(cost / evidence.step_ns)} of the "
            f"step) was measured here to take {ratio} in channels_last."
        )
    if not before or after > 0.85 * before:
        return
    yield Draft(
        title="Convolutions run on images that lie channel by channel",
        line=evidence.places.line(alike[largest[0]][0]),
        evidence=[
            f"Operators on images take {duration(before)} of a step of {duration(evidence.step_ns)} "
            f"({percent(before / evidence.step_ns)}), derivatives included; {percent(after / before)} "
            "of that would be left.",
            *told,
        ],
        fix="model.to(memory_format=torch.channels_last) once, and the same for each batch.",
        # All alike: some may take longer, and that counts against the others.
        edits=evidence.shrunk(timed, Ratio(after / before)),
        confidence="medium",
    )


def _on_images(evidence: Evidence, row: int) -> str | None:
    """What makes tensors like those of an operator on images, and a function that calls it; None for others.

    Pooling is among them: on images that lie channel by channel it may take twenty times as long.
    """
    given = evidence.inputs(row)
    if not given.shapes or len(given.shapes[0]) != 4:
        return None
    image = given.shapes[0]
    if evidence.name(row) == "aten::max_pool2d":
        # Kernel, stride, padding; not always noted, and without a stride it is the kernel's.
        kernel, stride, padding = ([*given.values[1:4], "", "", ""])[:3]
        if not kernel.startswith("["):
            return None
        stride, padding = (stride if stride.strip("[]") else kernel), padding or "0"
        call = f"F.max_pool2d(x, {kernel}, {stride}, {padding})"
        return f"xs = [torch.rand({image})]\ndef of(x): return {call}"
    weight = evidence.shape(row, 1)
    if len(weight) != 4 or image[1] != weight[1]:
        return None
    # Stride, padding, dilation.
    more = [text for text in given.values[3:6] if text.startswith("[")]
    settings = f"None, {', '.join(more)}" if len(more) == 3 else f"padding={weight[-1] // 2}"
    call = f"F.conv2d(x, w, {settings})"
    return f"xs = [torch.rand({image}), torch.rand({weight})]\ndef of(x, w): return {call}"


def _channels_last_ratio(evidence: Evidence, row: int, made: str, grads: bool) -> Ratio | None:
    assert evidence.workbench is not None
    setup = (
        f"torch.set_grad_enabled({grads})\n{made}\n"
        "ys = [one.to(memory_format=torch.channels_last) for one in xs]\n"
    )
    if grads:
        setup += "for one in (*xs, *ys): one.requires_grad_()\n"
        return evidence.workbench.ratio(setup, "of(*xs).sum().backward()", "of(*ys).sum().backward()")
    took = evidence.cost([row]) * len(evidence.steps)
    return evidence.workbench.ratio(setup, "of(*xs)", "of(*ys)", old_ns=took)


def _says_channels_last(nodes: Sequence[object]) -> bool:
    return any(getattr(node, "attr", None) == "channels_last" for node in nodes)
