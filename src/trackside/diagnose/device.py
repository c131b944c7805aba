"""Rules about a device: a host that does not keep up, waits for it, copies, and kernels that are the wrong ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trackside.diagnose.chains import numel
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.wording import count, duration, percent
from trackside.profiling.line_stacks import Line
from trackside.trace.edits import Move, Remove, Scale, ShrinkGaps
from trackside.trace.intervals import merged
from trackside.trace.links import launch_of
from trackside.trace.model import Ints, Kind
from trackside.trace.timeline import communicates, main_thread

__all__: list[str] = []

_SYNCS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "hipStreamSynchronize")
_READS = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal")
_COUNTS = ("aten::nonzero", "aten::masked_select", "aten::unique", "aten::_unique2", "aten::index", "aten::where")
# A kernel shorter than this takes less time than the host needs to launch it.
_TINY_NS = 10_000
_IDLE = 0.15


def _window(evidence: Evidence) -> tuple[int, int]:
    return int(evidence.steps.begin[0]), int(evidence.steps.end[-1])


def _in_window(evidence: Evidence, *kinds: Kind) -> Ints:
    rows = evidence.trace.of(*kinds)
    begin, end = _window(evidence)
    found: Ints = rows[(evidence.trace.start[rows] >= begin) & (evidence.trace.start[rows] < end)]
    return found


def _idle_share(evidence: Evidence) -> float:
    """How much of the steps no kernel and no copy runs on the device."""
    begin, end = _window(evidence)
    rows = evidence.trace.on_device
    busy = merged(evidence.trace.start[rows], evidence.trace.end[rows]).within(begin, end).total
    return 1 - busy / max(1, end - begin)


def _host_tasks(evidence: Evidence) -> Ints:
    """Tasks of the thread that launches, but for those that wait."""
    main = main_thread(evidence.trace)
    rows = evidence.traced.row
    on_main = (evidence.trace.lane[rows] == main) & ~evidence.trace.named(*_SYNCS)[rows]
    return np.flatnonzero(on_main)


def _line(evidence: Evidence, rows: Ints) -> Line | None:
    """The line that has the most of these rows."""
    lines = [line for row in rows.tolist() if (line := evidence.places.line(row)) is not None]
    return max(set(lines), key=lines.count) if lines else None


# -- the host does not keep up -------------------------------------------------------------------------


@rule("tiny-kernels", "host", item="pytorch.cuda-graphs", on="device")
def tiny_kernels(evidence: Evidence) -> Iterator[Draft]:
    """Kernels so short that the device waits for the host to launch the next."""
    kernels = _in_window(evidence, Kind.KERNEL)
    if len(kernels) < 20 * len(evidence.steps) or _replays(evidence):
        return
    median = float(np.median(evidence.trace.duration[kernels]))
    idle = _idle_share(evidence)
    if median >= _TINY_NS or idle < _IDLE:
        return
    yield from _faster_host(
        evidence,
        title="Kernels are shorter than the time it takes to launch them",
        told=f"Half of the {count(len(kernels) / len(evidence.steps))} kernels of a step take less than {duration(median)}; "
        f"the device is idle for {percent(idle)} of the step.",
        fix="Capture the step in a CUDA graph, or compile the model with torch.compile(mode='reduce-overhead').",
        kernels=kernels,
    )


@rule("host-bound", "host", item="compilation.reduce-overhead", on="device", yields_to=("tiny-kernels",))
def host_bound(evidence: Evidence) -> Iterator[Draft]:
    """A device that waits for the host, with kernels of ordinary length."""
    kernels = _in_window(evidence, Kind.KERNEL)
    idle = _idle_share(evidence)
    if not len(kernels) or idle < _IDLE or _replays(evidence):
        return
    if float(np.median(evidence.trace.duration[kernels])) < _TINY_NS:
        return
    late = _late_share(evidence, kernels)
    if late < 0.5:
        return
    yield from _faster_host(
        evidence,
        title="The device waits for the host between kernels",
        told=f"The device is idle for {percent(idle)} of the step, and {percent(late)} of the kernels start as soon as they "
        "are launched.",
        fix="Take Python out of the step: torch.compile, fewer and larger operators, or a larger batch.",
        kernels=kernels,
    )


def _late_share(evidence: Evidence, kernels: Ints) -> float:
    """Share of kernels that had nothing to wait for but their launch."""
    calls = launch_of(evidence.trace, kernels)
    known = calls >= 0
    waited = evidence.trace.start[kernels[known]] - evidence.trace.end[calls[known]]
    return float((waited < 20_000).mean()) if known.any() else 0.0


def _faster_host(evidence: Evidence, title: str, told: str, fix: str, kernels: Ints) -> Iterator[Draft]:
    tasks = _host_tasks(evidence)

    def at(factor: float) -> list[Scale | ShrinkGaps]:
        return [Scale(tasks, factor), ShrinkGaps(tasks, factor)]

    yield Draft(
        title=title,
        line=_line(evidence, launch_of(evidence.trace, kernels)),
        evidence=[told],
        fix=fix,
        edits=at(0.3),
        least=at(0.5),
        most=at(0.1),
        confidence="medium",
    )


def _replays(evidence: Evidence) -> Ints:
    return np.flatnonzero(evidence.trace.named("cudaGraphLaunch", "hipGraphLaunch"))


@rule("gap-between-replays", "compile", item="pytorch.cuda-graphs", on="device")
def gap_between_replays(evidence: Evidence) -> Iterator[Draft]:
    """Time between replays of a CUDA graph in which the device does nothing."""
    replays = np.intersect1d(_replays(evidence), _in_window(evidence, Kind.RUNTIME))
    idle = _idle_share(evidence)
    if len(replays) < len(evidence.steps) or idle < 0.1:
        return
    tasks = _host_tasks(evidence)
    waits = np.flatnonzero(evidence.trace.named(*_SYNCS)[evidence.traced.row])
    yield Draft(
        title="The device waits between replays of its graph",
        line=_line(evidence, replays),
        evidence=[
            f"{count(len(replays) / len(evidence.steps))} replays run in a step, and the device is idle for {percent(idle)} "
            "of it.",
        ],
        fix="Queue the next replay before reading the last one's result: read it one step late, or copy it to pinned "
        "memory with non_blocking=True.",
        edits=[Remove(waits), Scale(tasks, 0.5), ShrinkGaps(tasks, 0.5)],
        least=[Remove(waits)],
        confidence="medium",
    )


# -- waits ---------------------------------------------------------------------------------------------


@rule("scalar-sync", "host", item="training.logging-sync", on="device")
def scalar_sync(evidence: Evidence) -> Iterator[Draft]:
    """.item(), float() or bool() of a device's tensor: the host waits until the device has caught up."""
    yield from _waits_under(
        evidence,
        _READS,
        "A number is read from the device, and the host waits for it",
        "Keep it a tensor and read it every n steps, or copy it to pinned memory with non_blocking=True and look a step "
        "later.",
    )


@rule("data-dependent-shape", "host", item="pytorch.data-dependent-shapes", on="device")
def data_dependent_shape(evidence: Evidence) -> Iterator[Draft]:
    """Boolean indexing, nonzero, unique: the host waits to learn how large the result is."""
    yield from _waits_under(
        evidence,
        _COUNTS,
        "The host waits to learn how many elements a mask selects",
        "Keep the shape: torch.where(mask, x, 0), a product with the mask, or nonzero_static.",
    )


def _waits_under(evidence: Evidence, names: tuple[str, ...], title: str, fix: str) -> Iterator[Draft]:
    rows = np.intersect1d(_in_window(evidence, Kind.RUNTIME), np.flatnonzero(evidence.trace.named(*_SYNCS)))
    found: dict[Line | None, list[int]] = {}
    for row in rows.tolist():
        if any(_under(evidence, row, name) for name in names):
            found.setdefault(evidence.places.line(int(evidence.places.inside[row])), []).append(row)
    for line, waits in found.items():
        waited = float(evidence.trace.duration[waits].sum()) / len(evidence.steps)
        yield Draft(
            title=title,
            line=line,
            evidence=[
                f"The host waits {count(len(waits) / len(evidence.steps))} times in a step, {duration(waited)} in all; "
                f"the device is idle for {percent(_idle_share(evidence))} of the step.",
            ],
            fix=fix,
            edits=[Remove(evidence.traced.tasks_of(waits))],
            confidence="high",
        )


def _under(evidence: Evidence, row: int, name: str) -> bool:
    inside = int(evidence.places.inside[row])
    return inside >= 0 and (evidence.name(inside) == name or evidence.under(inside, name))


@rule("explicit-sync", "host", item="pytorch.hidden-syncs", on="device")
def explicit_sync(evidence: Evidence) -> Iterator[Draft]:
    """torch.cuda.synchronize() in the step."""
    rows = np.intersect1d(
        _in_window(evidence, Kind.RUNTIME), np.flatnonzero(evidence.trace.named("cudaDeviceSynchronize", "hipDeviceSynchronize"))
    )
    rows = rows[evidence.places.inside[rows] < 0]
    if len(rows) < len(evidence.steps):
        return
    waited = float(evidence.trace.duration[rows].sum()) / len(evidence.steps)
    yield Draft(
        title="The host waits for the whole device in every step",
        line=_line(evidence, rows),
        evidence=[f"cudaDeviceSynchronize runs {count(len(rows) / len(evidence.steps))} times in a step: {duration(waited)}."],
        fix="Leave torch.cuda.synchronize() out; for timing use events and read them later.",
        edits=[Remove(evidence.traced.tasks_of(rows))],
        confidence="high",
    )


@rule("allocating-in-the-step", "host", item="memory.expandable-segments", on="device")
def allocating_in_the_step(evidence: Evidence) -> Iterator[Draft]:
    """cudaMalloc, cudaFree or pinning of memory in steady steps."""
    names = ("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost", "cudaHostRegister", "cuMemCreate", "cuMemMap")
    rows = np.intersect1d(_in_window(evidence, Kind.RUNTIME), np.flatnonzero(evidence.trace.named(*names)))
    if len(rows) < len(evidence.steps):
        return
    cost = float(evidence.trace.duration[rows].sum()) / len(evidence.steps)
    yield Draft(
        title="Memory is taken from the driver and given back in every step",
        line=_line(evidence, rows),
        evidence=[
            f"{count(len(rows) / len(evidence.steps))} calls of {', '.join(sorted({evidence.name(r) for r in rows.tolist()}))} "
            f"in a step take {duration(cost)}; cudaFree also waits for the device.",
        ],
        fix="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, drop torch.cuda.empty_cache(), and pin memory once.",
        edits=[Remove(evidence.traced.tasks_of(rows))],
        confidence="high",
    )


# -- copies --------------------------------------------------------------------------------------------


def _copies(evidence: Evidence, text: str) -> Ints:
    wanted = [i for i, name in enumerate(evidence.trace.names) if text in name]
    rows = _in_window(evidence, Kind.COPY)
    return rows[np.isin(evidence.trace.name[rows], wanted)]


@rule("pageable-copy", "input", item="storage.pinned-batches", on="device")
def pageable_copy(evidence: Evidence) -> Iterator[Draft]:
    """Batches copied to the device from ordinary memory: slow, and the host waits."""
    rows = _copies(evidence, "HtoD (Pageable")
    rows = rows[evidence.trace.size[rows] >= 1 << 16]
    if not len(rows):
        return
    size = float(evidence.trace.size[rows].sum())
    time = float(evidence.trace.duration[rows].sum())
    now = size / max(1.0, time) * 1e9
    pinned = evidence.machine.ceilings.get("gpu.copy.to-device", 3 * now)
    calls = launch_of(evidence.trace, rows)
    waits = np.intersect1d(
        evidence.closure(evidence.places.inside[calls[calls >= 0]]), np.flatnonzero(evidence.trace.named(*_SYNCS))
    )
    factor = min(1.0, now / pinned)
    yield Draft(
        title="Batches are copied to the device from ordinary memory",
        line=_line(evidence, calls[calls >= 0]),
        evidence=[
            f"{count(len(rows) / len(evidence.steps))} copies of a step move {size / len(evidence.steps) / 1e6:.1f} MB from "
            f"pageable memory at {now / 1e9:.1f} GB/s; pinned memory reaches {pinned / 1e9:.0f} GB/s.",
        ],
        fix="DataLoader(…, pin_memory=True), and .to(device, non_blocking=True).",
        edits=[Scale(evidence.traced.tasks_of(rows), factor), Remove(evidence.traced.tasks_of(waits))],
        least=[Scale(evidence.traced.tasks_of(rows), factor)],
        confidence="medium",
    )


@rule("exposed-copy", "input", item="pytorch.non-blocking-copies", on="device")
def exposed_copy(evidence: Evidence) -> Iterator[Draft]:
    """Copies to the device beside which nothing is computed."""
    rows = _copies(evidence, "HtoD")
    if not len(rows):
        return
    kernels = evidence.trace.of(Kind.KERNEL)
    computing = merged(evidence.trace.start[kernels], evidence.trace.end[kernels])
    copying = merged(evidence.trace.start[rows], evidence.trace.end[rows])
    begin, end = _window(evidence)
    exposed = copying.within(begin, end).minus(computing).total
    if exposed < 0.02 * (end - begin):
        return
    free = int(evidence.traced.graph.resource.max()) + 1
    yield Draft(
        title="The device waits for its next batch to be copied",
        line=_line(evidence, launch_of(evidence.trace, rows)),
        evidence=[
            f"For {duration(exposed / len(evidence.steps))} of a step a copy to the device runs and nothing else does "
            f"({percent(exposed / (end - begin))}).",
        ],
        fix="Copy the next batch on a stream of its own while this one is computed: with torch.cuda.stream(side): "
        "batch = batch.to(device, non_blocking=True).",
        edits=[Move(evidence.traced.tasks_of(rows), free)],
        confidence="medium",
    )


@rule("many-reads-back", "input", item="pytorch.small-transfers", on="device")
def many_reads_back(evidence: Evidence) -> Iterator[Draft]:
    """Several small copies from the device in one step."""
    rows = _copies(evidence, "DtoH")
    rows = rows[evidence.trace.size[rows] <= 4096]
    if len(rows) < 3 * len(evidence.steps):
        return
    calls = launch_of(evidence.trace, rows)
    outer = np.unique(evidence.outer[calls[calls >= 0]])
    # One of them stays.
    per_step = len(rows) / len(evidence.steps)
    gone = [row for place, row in enumerate(outer.tolist()) if place % max(1, round(per_step)) != 0]
    yield Draft(
        title="Single numbers are copied from the device one by one",
        line=_line(evidence, outer),
        evidence=[
            f"{count(per_step)} copies of a step bring at most 4 KB each from the device; each is a round trip.",
        ],
        fix="Collect them in one tensor and copy that: torch.stack([a, b, c]).tolist().",
        edits=[Remove(evidence.tasks(gone))],
        confidence="high",
    )


@rule("made-on-the-host", "input", item="pytorch.create-on-device", on="device")
def made_on_the_host(evidence: Evidence) -> Iterator[Draft]:
    """Tensors that are filled on the host and then moved, in every step."""
    makers = ("aten::randn", "aten::rand", "aten::zeros", "aten::ones", "aten::full", "aten::arange", "aten::randint")
    copies = _copies(evidence, "HtoD")
    calls = launch_of(evidence.trace, copies)
    moved = np.unique(evidence.outer[calls[calls >= 0]])
    rows = evidence.ops()
    outermost = rows[evidence.outer[rows] == rows]
    pairs = []
    for row in moved.tolist():
        place = int(np.searchsorted(outermost, row)) - 1
        if place >= 0 and evidence.name(int(outermost[place])) in makers:
            pairs.append((int(outermost[place]), row))
    if len(pairs) < len(evidence.steps):
        return
    both = [row for pair in pairs for row in pair]
    yield Draft(
        title="Tensors are filled on the host and then moved to the device",
        line=_line(evidence, np.array([made for made, _ in pairs])),
        evidence=[
            f"{count(len(pairs) / len(evidence.steps))} tensors of a step are made on the host and copied: "
            f"{duration(evidence.cost(both))} of {duration(evidence.step_ns)}.",
        ],
        fix="Make them where they are used: torch.zeros(…, device=device).",
        edits=evidence.shrunk(both, 0.1),
        confidence="high",
    )


# -- kernels -------------------------------------------------------------------------------------------


def _named(evidence: Evidence, *parts: str) -> Ints:
    wanted = [i for i, name in enumerate(evidence.trace.names) if any(part in name.lower() for part in parts)]
    rows = _in_window(evidence, Kind.KERNEL)
    return rows[np.isin(evidence.trace.name[rows], wanted)]


@rule("tf32-off", "arithmetic", item="precision.tf32-matmul", on="device")
def tf32_off(evidence: Evidence) -> Iterator[Draft]:
    """float32 products on the ordinary cores, with the tensor cores idle."""
    rows = _named(evidence, "sgemm", "ffma", "simt_s")
    share = float(evidence.trace.duration[rows].sum()) / len(evidence.steps) / evidence.step_ns
    if share < 0.02:
        return
    ceilings = evidence.machine.ceilings
    known = "gpu.gemm.fp32" in ceilings and "gpu.gemm.tf32" in ceilings
    ratio = ceilings["gpu.gemm.fp32"] / ceilings["gpu.gemm.tf32"] if known else 0.25
    tasks = evidence.traced.tasks_of(rows)
    calls = launch_of(evidence.trace, rows)
    by_line = _line(evidence, calls[calls >= 0])
    yield Draft(
        title="Products in float32 leave the tensor cores idle",
        line=by_line,
        evidence=[
            f"{count(len(rows) / len(evidence.steps))} kernels of a step multiply in float32 on the ordinary cores: "
            f"{percent(share)} of the step.",
            f"In TF32 a large product takes {ratio:.2f} of that time"
            + (" by this machine's measured ceilings." if known else " on a card of this kind; not measured here."),
        ],
        fix="torch.set_float32_matmul_precision('high') at the program's start; or bfloat16 by autocast.",
        # Small ones do not reach the ceiling: half of the way for the estimate.
        edits=[Scale(tasks, min(1.0, 0.5 + ratio / 2))],
        least=[Scale(tasks, min(1.0, 0.75 + ratio / 4))],
        most=[Scale(tasks, min(1.0, ratio))],
        confidence="medium" if known else "low",
    )


@rule("older-products", "arithmetic", item="kernels.hopper-instructions", on="device")
def older_products(evidence: Evidence) -> Iterator[Draft]:
    """16-bit products by kernels of an older generation than the card."""
    if "H100" not in _device_name(evidence) and "H200" not in _device_name(evidence):
        return
    rows = _named(evidence, "s16816gemm", "sm80_xmma_gemm_bf16", "sm80_xmma_gemm_f16", "ampere_bf16", "ampere_fp16", "cutlass_80_tensorop")
    share = float(evidence.trace.duration[rows].sum()) / len(evidence.steps) / evidence.step_ns
    if share < 0.05:
        return
    tasks = evidence.traced.tasks_of(rows)
    calls = launch_of(evidence.trace, rows)
    yield Draft(
        title="16-bit products run on kernels of an older generation",
        line=_line(evidence, calls[calls >= 0]),
        evidence=[f"{count(len(rows) / len(evidence.steps))} products of a step use kernels built for sm80: {percent(share)} of it."],
        fix="Update torch and cuBLAS, align dimensions to 8, or tune with torch.compile(mode='max-autotune').",
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
    odd = sorted({size for row in rows for shape in evidence.inputs(row).shapes for size in shape[-2:] if size % 8})
    yield Draft(
        title="Products have dimensions that tensor cores cannot take whole",
        line=_line(evidence, np.array(rows)),
        evidence=[
            f"{count(len(rows) / len(evidence.steps))} products of a step have dimensions of {', '.join(map(str, odd[:4]))}, "
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
        line=_line(evidence, calls[calls >= 0]),
        evidence=[f"{count(len(rows) / len(evidence.steps))} kernels of a step only change a layout: {percent(share)} of it."],
        fix="model.to(memory_format=torch.channels_last), and the same for the images.",
        edits=[Remove(evidence.traced.tasks_of(rows))],
        confidence="high",
    )


@rule("cast-storm", "arithmetic", item="precision.inference-weights", on="device")
def cast_storm(evidence: Evidence) -> Iterator[Draft]:
    """Conversions between types that take a good part of the step."""
    rows = evidence.ops("aten::_to_copy")
    rows = np.array([row for row in rows.tolist() if evidence.type(row) in ("float", "c10::BFloat16", "c10::Half")], np.int64)
    device = np.intersect1d(evidence.closure(rows), evidence.trace.of(Kind.KERNEL))
    cost = float(evidence.trace.duration[device].sum()) / len(evidence.steps)
    if cost < 0.05 * evidence.step_ns:
        return
    tasks = evidence.traced.tasks_of(device)
    yield Draft(
        title="Much of the step goes into conversions between types",
        line=_line(evidence, rows),
        evidence=[
            f"{count(len(device) / len(evidence.steps))} kernels of a step only convert: {duration(cost)} of "
            f"{duration(evidence.step_ns)} ({percent(cost / evidence.step_ns)}).",
        ],
        fix="Hold weights in the type that they are used in, keep autocast around the whole forward pass, or compile, which "
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
        line=_line(evidence, rows),
        evidence=[
            f"{count(len(rows) / len(evidence.steps))} calls of scaled_dot_product_attention in a step take {duration(cost)} by "
            f"the math backend ({percent(cost / evidence.step_ns)}), {count(len(rest) / len(evidence.steps))} of their kernels "
            "only move scores.",
        ],
        fix="See why the fast backends were refused: with sdpa_kernel(SDPBackend.FLASH_ATTENTION): …; mostly a mask, float32, or "
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
    kind = evidence.name(int(ranges[0])).removeprefix("Optimizer.step#").removesuffix(".step") if len(ranges) else ""
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


# -- several devices -----------------------------------------------------------------------------------


@rule("exposed-collectives", "distributed", item="distributed.ddp-bucket-size", on="both")
def exposed_collectives(evidence: Evidence) -> Iterator[Draft]:
    """Communication beside which nothing is computed."""
    rows = np.flatnonzero(communicates(evidence.trace))
    begin, end = _window(evidence)
    rows = rows[(evidence.trace.start[rows] >= begin) & (evidence.trace.end[rows] <= end)]
    kernels = np.setdiff1d(evidence.trace.of(Kind.KERNEL), rows)
    if not len(rows):
        return
    computing = merged(evidence.trace.start[kernels], evidence.trace.end[kernels])
    talking = merged(evidence.trace.start[rows], evidence.trace.end[rows])
    exposed = talking.minus(computing).total
    if exposed < 0.1 * (end - begin):
        return
    tasks = evidence.traced.tasks_of(rows)
    left = 1 - min(1.0, exposed / max(1, talking.total))
    yield Draft(
        title="The device waits for communication",
        line=_line(evidence, launch_of(evidence.trace, rows) if evidence.has_device else rows),
        evidence=[
            f"For {duration(exposed / len(evidence.steps))} of a step collectives run and nothing else does "
            f"({percent(exposed / (end - begin))}).",
        ],
        fix="Overlap it: larger or smaller DDP buckets (bucket_cap_mb), gradient_as_bucket_view=True, FSDP prefetching; or "
        "communicate less often with no_sync().",
        edits=[Scale(tasks, min(1.0, left + 0.5))],
        least=[Scale(tasks, min(1.0, left + 0.8))],
        most=[Scale(tasks, min(1.0, left + 0.2))],
        confidence="low",
    )


@rule("small-messages", "distributed", item="distributed.ddp-bucket-size", on="both")
def small_messages(evidence: Evidence) -> Iterator[Draft]:
    """Many collectives over small tensors in one step."""
    wanted = ("c10d::allreduce_", "c10d::_allgather_base_", "c10d::allgather_", "c10d::broadcast_")
    rows = [
        row
        for row in evidence.ops(*wanted).tolist()
        if 0 < sum(numel(shape) for shape in evidence.inputs(row).shapes if shape) * 4 < 1 << 20
    ]
    per_step = len(rows) / len(evidence.steps)
    if per_step < 10:
        return
    cost = evidence.cost(rows)
    yield Draft(
        title="Many small messages are sent one by one",
        line=_line(evidence, np.array(rows)),
        evidence=[f"{count(per_step)} collectives of a step carry less than 1 MB each and take {duration(cost)} on the host."],
        fix="Put the tensors into one buffer and send that: torch._utils._flatten_dense_tensors, or DDP's buckets.",
        edits=evidence.shrunk(rows, 0.2),
        least=evidence.shrunk(rows, 0.5),
        confidence="low",
    )
