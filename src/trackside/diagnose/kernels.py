"""Rules about kernels on a device that are the wrong ones, or too many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trackside.diagnose.evidence import Evidence
from trackside.diagnose.on_device import (
    busiest_line,
    in_window,
)
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.wording import count, duration, percent
from trackside.profiling.roofline import Roofs, kernel_works
from trackside.trace.edits import Remove, Scale, ShrinkGaps
from trackside.trace.links import launch_of
from trackside.trace.model import Ints, Kind

__all__: list[str] = []


def _named(evidence: Evidence, *parts: str) -> Ints:
    wanted = [i for i, name in enumerate(evidence.trace.names) if any(part in name.lower() for part in parts)]
    rows = in_window(evidence, Kind.KERNEL)
    return rows[np.isin(evidence.trace.name[rows], wanted)]


@rule("tf32-off", "arithmetic", item="precision.tf32-matmul", on="device")
def tf32_off(evidence: Evidence) -> Iterator[Draft]:
    """float32 products on the ordinary cores, with the tensor cores idle."""
    rows = _named(evidence, "sgemm", "ffma", "simt_s")
    share = float(evidence.trace.duration[rows].sum()) / len(evidence.steps) / evidence.step_ns
    if share < 0.02:
        return
    # Of the time that they take now, at the speed that a large product was measured to have.
    ratio = _in_tf32(evidence, rows)
    tasks = evidence.traced.tasks_of(rows)
    calls = launch_of(evidence.trace, rows)
    by_line = busiest_line(evidence, calls[calls >= 0])
    yield Draft(
        title="Products in float32 leave the tensor cores idle",
        line=by_line,
        evidence=[
            f"{count(len(rows) / len(evidence.steps))} kernels of a step multiply in float32 on the "
            f"ordinary cores: {percent(share)} of the step.",
            f"By this machine's measured ceilings they take at least {percent(ratio)} of that in TF32."
            if ratio is not None
            else "How fast TF32 is on this machine was not measured: trackside ceilings.",
        ],
        fix="torch.set_float32_matmul_precision('high') at the program's start; or bfloat16 by autocast.",
        edits=[Scale(tasks, _reached(ratio, _TF32_REACHES))],
        least=[Scale(tasks, _reached(ratio, _TF32_REACHES / 2))],
        most=[Scale(tasks, _reached(ratio, 1.0))],
        confidence="medium" if ratio is not None else "low",
    )


# Of the ceiling, which is that of one very large product, the share that products of a model reach; and what
# TF32 takes of float32's time on cards of these years, where nothing was measured.
_TF32_REACHES, _USUAL_TF32 = 0.7, 0.25


def _reached(ratio: float | None, share: float) -> float:
    return min(1.0, (ratio if ratio is not None else _USUAL_TF32) / share)


def _in_tf32(evidence: Evidence, rows: Ints) -> float | None:
    """The share of their time that products need at least in TF32."""
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
    rows = _named(
        evidence,
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
            f"{count(len(rows) / len(evidence.steps))} products of a step use kernels built for sm80: "
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
    device = np.intersect1d(evidence.closure(rows), evidence.trace.on_device)
    tasks = evidence.traced.tasks_of(device)
    odd = sorted(
        {size for row in rows for shape in evidence.inputs(row).shapes for size in shape[-2:] if size % 8}
    )
    yield Draft(
        title="Products have dimensions that tensor cores cannot take whole",
        line=busiest_line(evidence, np.array(rows)),
        evidence=[
            f"{count(len(rows) / len(evidence.steps))} products of a step have dimensions of "
            f"{', '.join(map(str, odd[:4]))}, "
            f"no multiple of 8; they take {percent(share)} of the step.",
        ],
        fix="Pad the dimension to the next multiple of 8 (vocabularies: of 64).",
        edits=[Scale(tasks, 0.6)],
        least=[Scale(tasks, 0.9)],
        most=[Scale(tasks, 0.4)],
        confidence="low",
    )


@rule("layout-conversions", "arithmetic", item="pytorch.channels-last", on="device")
def layout_conversions(evidence: Evidence) -> Iterator[Draft]:
    """Kernels that only turn images from one layout into the other and back."""
    rows = _named(evidence, "nchwtonhwc", "nhwctonchw", "nchw2nhwc", "nhwc2nchw")
    share = float(evidence.trace.duration[rows].sum()) / len(evidence.steps) / evidence.step_ns
    if share < 0.01:
        return
    calls = launch_of(evidence.trace, rows)
    yield Draft(
        title="Images are turned into another layout around every convolution",
        line=busiest_line(evidence, calls[calls >= 0]),
        evidence=[
            f"{count(len(rows) / len(evidence.steps))} kernels of a step only change a layout: "
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
            f"{count(len(device) / len(evidence.steps))} kernels of a step only convert: {duration(cost)} of "
            f"{duration(evidence.step_ns)} ({percent(cost / evidence.step_ns)}).",
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
            f"{count(len(rows) / len(evidence.steps))} calls of scaled_dot_product_attention in a step "
            f"take {duration(cost)} by "
            f"the math backend ({percent(cost / evidence.step_ns)}), "
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
    # A fused kernel reads and writes every tensor once; the grouped ones up to three times.
    yield Draft(
        title=f"{kind} takes {count(per_step)} kernels for a step that fits into a few",
        line=evidence.places.caller(int(ranges[0])),
        evidence=[
            f"A step of {kind} launches {count(per_step)} kernels, {duration(cost)} on the device, and takes "
            f"{duration(float(evidence.trace.duration[ranges].mean()))} on the host.",
        ],
        fix=f"Give torch.optim.{kind} the argument fused=True.",
        edits=[Scale(tasks, 0.5), Scale(hosts, 0.3), ShrinkGaps(hosts, 0.5)],
        least=[Scale(tasks, 0.8), Scale(hosts, 0.7)],
        most=[Scale(tasks, 0.35), Scale(hosts, 0.1), ShrinkGaps(hosts, 0.1)],
        confidence="medium",
    )
