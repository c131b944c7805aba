"""Rules about kernels on a device that are the wrong ones, or too many."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import numpy as np

from trackside.diagnose.chains import dtype_text
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.on_device import busiest_line, named
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.training import with_fused
from trackside.diagnose.wording import count, many, percent
from trackside.diagnose.workbench import Ratio
from trackside.profiling.line_stacks import Line
from trackside.profiling.roofline import Roofs, kernel_works
from trackside.records.durations import duration
from trackside.trace.edits import Remove, Scale, ShrinkGaps
from trackside.trace.links import launch_of
from trackside.trace.model import Ints, Kind

__all__: list[str] = []

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
# So many different products are timed: few make up most of the time.
_TIMED_SHAPES = 4


@rule("tf32-off", "arithmetic", item="precision.tf32-matmul", on="device")
def tf32_off(evidence: Evidence) -> Iterator[Draft]:
    """float32 products on the ordinary cores, with the tensor cores idle."""
    rows = named(evidence, Kind.KERNEL, "sgemm", "ffma", "simt_s")
    share = float(evidence.trace.duration[rows].sum()) / len(evidence.steps) / evidence.step_ns
    if share < 0.02:
        return
    tasks = evidence.traced.tasks_of(rows)
    measured = _timed_in_tf32(evidence, rows)
    ratio = None if measured is not None else _in_tf32(evidence, rows)
    if measured is not None:
        told = f"Products of these shapes were measured here to take {percent(measured)} of the time in TF32."
    elif ratio is not None:
        told = f"By this machine's measured ceilings they take at least {percent(ratio)} of that in TF32."
    else:
        told = "How fast TF32 is on this machine was not measured: trackside ceilings."

    def at(reached: float) -> list[Scale]:
        return [Scale(tasks, measured if measured is not None else _reached(ratio, reached))]

    calls = launch_of(evidence.trace, rows)
    by_line = busiest_line(evidence, calls[calls >= 0])
    yield Draft(
        title="Products in float32 leave the tensor cores idle",
        line=by_line,
        evidence=[
            f"{many(len(rows) / len(evidence.steps), 'kernel')} of a step for products in float32 on the "
            f"ordinary cores: {percent(share)} of the step.",
            told,
        ],
        fix="torch.set_float32_matmul_precision('high') at the program's start; or bfloat16 by autocast.",
        edits=at(_TF32_REACHES),
        least=at(_TF32_REACHES / 2),
        most=at(1.0),
        confidence="high" if measured is not None else "medium" if ratio is not None else "low",
        diff=_with_tf32(evidence, by_line),
    )


def _with_tf32(evidence: Evidence, line: Line | None) -> str | None:
    """The program's own file, or that of the line, with TF32 switched on behind its imports."""
    script = evidence.sources.get(os.path.abspath(evidence.command[0])) if evidence.command else None
    source = script or (evidence.source(line) if line is not None else None)
    torch = source.named("torch") if source is not None else None
    if source is None or torch is None:
        return None
    change = source.behind_imports(f'{torch}.set_float32_matmul_precision("high")')
    return source.diff([change]) if change is not None else None


# Of the ceiling, which is that of one very large product, the share that products of a model reach; and what
# TF32 takes of float32's time on cards of these years, where nothing was measured.
_TF32_REACHES, _USUAL_TF32 = 0.7, 0.25


def _reached(ratio: float | None, share: float) -> float:
    return min(1.0, (ratio if ratio is not None else _USUAL_TF32) / share)


def _timed_in_tf32(evidence: Evidence, rows: Ints) -> float | None:
    """What the products that take the most time take of it in TF32, timed at their shapes."""
    if evidence.workbench is None:
        return None
    taken: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    for row, call in zip(rows.tolist(), launch_of(evidence.trace, rows).tolist(), strict=True):
        matrices = _multiplied(evidence, call) if call >= 0 else None
        if matrices is not None:
            taken[matrices] += int(evidence.trace.duration[row])
    arm = "torch.backends.cuda.matmul.allow_tf32 = {}\na @ b"
    before = after = 0.0
    for (a, b), ns in taken.most_common(_TIMED_SHAPES):
        setup = f"torch.set_grad_enabled(False); a, b = torch.randn({a}), torch.randn({b})"
        ratio = evidence.workbench.ratio(setup, arm.format(False), arm.format(True))
        if ratio is not None and ratio.device is not None:
            before, after = before + ns, after + ns * min(1.0, ratio.device)
    return after / before if before else None


def _multiplied(evidence: Evidence, call: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The matrices of the product that a launch belongs to."""
    row = int(evidence.places.inside[call])
    while row >= 0:
        if evidence.name(row) in _PRODUCTS:
            matrices = [shape for shape in evidence.inputs(row).shapes if len(shape) >= 2][-2:]
            return (matrices[0], matrices[1]) if len(matrices) == 2 else None
        row = int(evidence.places.inside[row])
    return None


def _in_tf32(evidence: Evidence, rows: Ints) -> float | None:
    """The share of their time that products need at least in TF32, by the ceilings."""
    ceilings = evidence.machine.ceilings
    if "gpu.gemm.tf32" not in ceilings:
        return None
    roofs = Roofs({**ceilings, "gpu.gemm.fp32": ceilings["gpu.gemm.tf32"]}, on_device=True)
    works = kernel_works(evidence.trace, rows)
    least = [roofs.least_ns(work, float(evidence.trace.duration[row])) for row, work in works.items()]
    taken = sum(float(evidence.trace.duration[row]) for row in works)
    needed = sum(max(times) for times in least if times is not None)
    if taken:
        return needed / taken
    # Replayed from a graph: what they multiply is not told.
    plain = ceilings.get("gpu.gemm.fp32")
    return plain / ceilings["gpu.gemm.tf32"] if plain else None


@rule("older-products", "arithmetic", item="kernels.hopper-instructions", on="device")
def older_products(evidence: Evidence) -> Iterator[Draft]:
    """16-bit products by kernels of an older generation than the card."""
    if "H100" not in _device_name(evidence) and "H200" not in _device_name(evidence):
        return
    rows = named(
        evidence,
        Kind.KERNEL,
        "s16816gemm",
        "sm80_xmma_gemm_bf16",
        "sm80_xmma_gemm_f16",
        "ampere_bf16",
        "ampere_fp16",
        "cutlass_80_tensorop",
    )
    share = float(evidence.trace.duration[rows].sum()) / len(evidence.steps) / evidence.step_ns
    if share < 0.05:
        return
    tasks = evidence.traced.tasks_of(rows)
    calls = launch_of(evidence.trace, rows)
    yield Draft(
        title="16-bit products run on kernels of an older generation",
        line=busiest_line(evidence, calls[calls >= 0]),
        evidence=[
            f"{many(len(rows) / len(evidence.steps), 'product')} of a step on kernels built for sm80: "
            f"{percent(share)} of it."
        ],
        fix="Update torch and cuBLAS, align dimensions to 8, or tune with "
        "torch.compile(mode='max-autotune').",
        edits=[Scale(tasks, 0.75)],
        least=[Scale(tasks, 0.95)],
        most=[Scale(tasks, 0.55)],
        confidence="low",
    )


def _device_name(evidence: Evidence) -> str:
    properties = evidence.trace.facts.get("deviceProperties") or [{}]
    return str(properties[0].get("name", "")) if isinstance(properties[0], dict) else ""


@rule("unaligned-products", "arithmetic", item="kernels.tensor-core-alignment", on="device")
def unaligned_products(evidence: Evidence) -> Iterator[Draft]:
    """16-bit products with a dimension that is no multiple of 8."""
    rows = [
        row
        for row in evidence.ops("aten::mm", "aten::addmm", "aten::bmm").tolist()
        if evidence.type(row, 1) in ("c10::BFloat16", "c10::Half")
        and any(size % 8 for shape in evidence.inputs(row).shapes if len(shape) >= 2 for size in shape[-2:])
    ]
    share = evidence.share(rows)
    if not rows or share < 0.03:
        return
    ratio = _timed_padded(evidence, rows)
    if ratio is not None and ratio > 0.95:
        return
    device = np.intersect1d(evidence.closure(rows), evidence.trace.on_device)
    tasks = evidence.traced.tasks_of(device)
    odd = sorted(
        {size for row in rows for shape in evidence.inputs(row).shapes for size in shape[-2:] if size % 8}
    )
    yield Draft(
        title="Products have dimensions that tensor cores cannot take whole",
        line=busiest_line(evidence, np.array(rows)),
        evidence=[
            f"{many(len(rows) / len(evidence.steps), 'product')} of a step with dimensions of "
            f"{', '.join(map(str, odd[:4]))}, no multiple of 8: {percent(share)} of the step.",
            *(
                [f"Padded, the largest was measured here to take {percent(ratio)} of the time."]
                if ratio
                else []
            ),
        ],
        fix="Pad the dimension to the next multiple of 8 (vocabularies: of 64).",
        edits=[Scale(tasks, ratio or 0.6)],
        least=None if ratio else [Scale(tasks, 0.9)],
        most=None if ratio else [Scale(tasks, 0.4)],
        confidence="medium" if ratio else "low",
    )


def _timed_padded(evidence: Evidence, rows: list[int]) -> float | None:
    """What the costliest product takes of its time with dimensions of multiples of 8."""
    row = max(rows, key=lambda one: evidence.cost([one]))
    matrices = [shape for shape in evidence.inputs(row).shapes if len(shape) >= 2][-2:]
    if evidence.workbench is None or len(matrices) < 2:
        return None
    (a, b), dtype = matrices, "bfloat16" if evidence.type(row, 1) == "c10::BFloat16" else "float16"
    padded = [(*shape[:-2], *(size + -size % 8 for size in shape[-2:])) for shape in (a, b)]
    setup = "torch.set_grad_enabled(False)\n" + "".join(
        f"{name} = torch.randn({shape}).to(torch.{dtype})\n"
        for name, shape in zip("abcd", (a, b, *padded), strict=True)
    )
    ratio = evidence.workbench.ratio(setup, "a @ b", "c @ d")
    return ratio.device if ratio is not None else None


@rule("layout-conversions", "arithmetic", item="pytorch.channels-last", on="device")
def layout_conversions(evidence: Evidence) -> Iterator[Draft]:
    """Kernels that only turn images from one layout into the other and back."""
    rows = named(evidence, Kind.KERNEL, "nchwtonhwc", "nhwctonchw", "nchw2nhwc", "nhwc2nchw")
    share = float(evidence.trace.duration[rows].sum()) / len(evidence.steps) / evidence.step_ns
    if share < 0.01:
        return
    calls = launch_of(evidence.trace, rows)
    yield Draft(
        title="Images are turned into another layout around every convolution",
        line=busiest_line(evidence, calls[calls >= 0]),
        evidence=[
            f"{many(len(rows) / len(evidence.steps), 'kernel')} of a step only for another layout: "
            f"{percent(share)} of it."
        ],
        fix="model.to(memory_format=torch.channels_last), and the same for the images.",
        edits=[Remove(evidence.traced.tasks_of(rows))],
        confidence="high",
    )


@rule("cast-storm", "arithmetic", item="precision.inference-weights", on="device")
def cast_storm(evidence: Evidence) -> Iterator[Draft]:
    """Conversions between types that take a good part of the step."""
    rows = evidence.ops("aten::_to_copy")
    rows = np.array(
        [row for row in rows.tolist() if evidence.type(row) in ("float", "c10::BFloat16", "c10::Half")],
        np.int64,
    )
    device = np.intersect1d(evidence.closure(rows), evidence.trace.of(Kind.KERNEL))
    cost = float(evidence.trace.duration[device].sum()) / len(evidence.steps)
    if cost < 0.05 * evidence.step_ns:
        return
    tasks = evidence.traced.tasks_of(device)
    yield Draft(
        title="Much of the step goes into conversions between types",
        line=busiest_line(evidence, rows),
        evidence=[
            f"{many(len(device) / len(evidence.steps), 'kernel')} of a step only for conversions: "
            f"{duration(cost)} of {duration(evidence.step_ns)} ({percent(cost / evidence.step_ns)}).",
        ],
        fix="Hold weights in the type that they are used in, keep autocast around the whole forward pass, "
        "or compile, which "
        "converts while it computes.",
        edits=[Scale(tasks, 0.4)],
        least=[Scale(tasks, 0.7)],
        most=[Scale(tasks, 0.1)],
        confidence="low",
    )


@rule("attention-fallback", "arithmetic", item="attention.backend", on="device")
def attention_fallback(evidence: Evidence) -> Iterator[Draft]:
    """scaled_dot_product_attention that fell back to the plain formula."""
    rows = evidence.ops("aten::_scaled_dot_product_attention_math")
    if not len(rows):
        return
    device = np.intersect1d(evidence.closure(rows), evidence.trace.of(Kind.KERNEL))
    products = [row for row in device.tolist() if "gemm" in evidence.name(row).lower()]
    rest = np.setdiff1d(device, products)
    cost = evidence.cost(rows)
    yield Draft(
        title="Attention fell back to the plain formula",
        line=busiest_line(evidence, rows),
        evidence=[
            f"{many(len(rows) / len(evidence.steps), 'call')} of scaled_dot_product_attention in a step by "
            f"the math backend: {duration(cost)} ({percent(cost / evidence.step_ns)}), "
            f"{count(len(rest) / len(evidence.steps))} of their kernels "
            "only move scores.",
        ],
        fix="See why the fast backends were refused: with sdpa_kernel(SDPBackend.FLASH_ATTENTION): …; "
        "mostly a mask, float32, or "
        "a head size above 256.",
        edits=[Remove(evidence.traced.tasks_of(rest))],
        confidence="medium",
    )


@rule("optimizer-kernels", "training", item="training.fused-optimizer", on="device")
def optimizer_kernels(evidence: Evidence) -> Iterator[Draft]:
    """An optimizer's step in many kernels, where one fused kernel for all tensors exists."""
    ranges = evidence.annotations("Optimizer.step#")
    rows = evidence.within(evidence.ops(), ranges)
    names = {evidence.name(row) for row in rows.tolist()}
    kind = (
        evidence.name(int(ranges[0])).removeprefix("Optimizer.step#").removesuffix(".step")
        if len(ranges)
        else ""
    )
    if kind not in ("Adam", "AdamW", "SGD", "Adagrad") or any("_fused_" in name for name in names):
        return
    device = np.intersect1d(evidence.closure(rows), evidence.trace.of(Kind.KERNEL))
    per_step = len(device) / len(ranges)
    if per_step < 4:
        return
    outer = rows[evidence.outer[rows] == rows]
    tasks = evidence.traced.tasks_of(device)
    hosts = np.setdiff1d(evidence.tasks(outer), tasks)
    cost = float(evidence.trace.duration[device].sum()) / len(evidence.steps)
    ratio = _timed_fused(evidence, kind, grouped=any("_foreach_" in name for name in names))
    if ratio is not None and ratio.best > 0.95:
        return
    yield Draft(
        title=f"{kind} takes {count(per_step)} kernels for a step that fits into a few",
        line=evidence.places.caller(int(ranges[0])),
        evidence=[
            f"A step of {kind} launches {count(per_step)} kernels, {duration(cost)} on the device, and takes "
            f"{duration(float(evidence.trace.duration[ranges].mean()))} on the host.",
            *([f"On tensors of these shapes fused=True was measured here to take {ratio}."] if ratio else []),
        ],
        fix=f"Give torch.optim.{kind} the argument fused=True.",
        # A fused kernel reads and writes every tensor once; the grouped ones up to three times.
        edits=evidence.ranges_shrunk(ranges, ratio)
        if ratio
        else [Scale(tasks, 0.5), Scale(hosts, 0.3), ShrinkGaps(hosts, 0.5)],
        least=None if ratio else [Scale(tasks, 0.8), Scale(hosts, 0.7)],
        most=None if ratio else [Scale(tasks, 0.35), Scale(hosts, 0.1), ShrinkGaps(hosts, 0.1)],
        confidence="high" if ratio else "medium",
        diff=with_fused(evidence, kind),
    )


def _timed_fused(evidence: Evidence, kind: str, grouped: bool) -> Ratio | None:
    """A fused step against the program's own, over tensors like those that have gradients."""
    first = int(evidence.steps.end[0])
    tensors = [
        (evidence.shape(row), evidence.type(row))
        for row in evidence.ops("torch::autograd::AccumulateGrad").tolist()
        if evidence.trace.start[row] < first
    ]
    if evidence.workbench is None or not tensors:
        return None
    made = ", ".join(f"({shape}, {dtype_text(kind_)})" for shape, kind_ in tensors)
    setup = (
        "def made(**more):\n"
        f"    ps = [torch.nn.Parameter(torch.rand(s, dtype=d)) for s, d in [{made}]]\n"
        "    for p in ps: p.grad = torch.rand_like(p)\n"
        f"    return torch.optim.{kind}(ps, lr=1e-6, **more)\n"
        f"one, other = made(foreach={grouped}), made(fused=True)\n"
    )
    return evidence.workbench.ratio(setup, "one.step()", "other.step()")
