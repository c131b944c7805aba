"""Rules about a device and its host: one that does not keep up, and waits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trackside.diagnose.evidence import Evidence
from trackside.diagnose.on_device import (
    SYNCS,
    busiest_line,
    host_tasks,
    idle_share,
    in_window,
)
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.wording import count, many, percent
from trackside.profiling.line_stacks import Line
from trackside.records.durations import duration
from trackside.trace.edits import Remove, Scale, ShrinkGaps
from trackside.trace.links import launch_of
from trackside.trace.model import Ints, Kind

__all__: list[str] = []

_READS = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal")
_COUNTS = (
    "aten::nonzero",
    "aten::masked_select",
    "aten::unique",
    "aten::_unique2",
    "aten::index",
    "aten::where",
)
# A kernel shorter than this takes less time than the host needs to launch it.
_TINY_NS = 10_000
_IDLE = 0.15


@rule("tiny-kernels", "host", item="pytorch.cuda-graphs", on="device")
def tiny_kernels(evidence: Evidence) -> Iterator[Draft]:
    """Kernels so short that the device waits for the host to launch the next."""
    kernels = in_window(evidence, Kind.KERNEL)
    if len(kernels) < 20 * len(evidence.steps) or len(_replays(evidence)):
        return
    median = float(np.median(evidence.trace.duration[kernels]))
    idle = idle_share(evidence)
    if median >= _TINY_NS or idle < _IDLE:
        return
    yield from _faster_host(
        evidence,
        title="Kernels are shorter than the time it takes to launch them",
        told=f"Half of the {count(len(kernels) / len(evidence.steps))} kernels of a step take less than "
        f"{duration(median)}; "
        f"the device is idle for {percent(idle)} of the step.",
        fix="Capture the step in a CUDA graph, or compile the model with "
        "torch.compile(mode='reduce-overhead').",
        kernels=kernels,
    )


@rule("host-bound", "host", item="compilation.reduce-overhead", on="device", yields_to=("tiny-kernels",))
def host_bound(evidence: Evidence) -> Iterator[Draft]:
    """A device that waits for the host, with kernels of ordinary length."""
    kernels = in_window(evidence, Kind.KERNEL)
    idle = idle_share(evidence)
    if not len(kernels) or idle < _IDLE or len(_replays(evidence)):
        return
    if float(np.median(evidence.trace.duration[kernels])) < _TINY_NS:
        return
    late = _late_share(evidence, kernels)
    if late < 0.5:
        return
    yield from _faster_host(
        evidence,
        title="The device waits for the host between kernels",
        told=f"The device is idle for {percent(idle)} of the step, and {percent(late)} of the kernels "
        "start as soon as they "
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
    tasks = host_tasks(evidence)

    def at(factor: float) -> list[Scale | ShrinkGaps]:
        return [Scale(tasks, factor), ShrinkGaps(tasks, factor)]

    yield Draft(
        title=title,
        line=busiest_line(evidence, launch_of(evidence.trace, kernels)),
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
    replays = np.intersect1d(_replays(evidence), in_window(evidence, Kind.RUNTIME))
    idle = idle_share(evidence)
    if len(replays) < len(evidence.steps) or idle < 0.1:
        return
    tasks = host_tasks(evidence)
    waits = np.flatnonzero(evidence.trace.named(*SYNCS)[evidence.traced.row])
    yield Draft(
        title="The device waits between replays of its graph",
        line=busiest_line(evidence, replays),
        evidence=[
            f"{many(len(replays) / len(evidence.steps), 'replay')} in a step, and the device is idle "
            f"for {percent(idle)} "
            "of it.",
        ],
        fix="Queue the next replay before reading the last one's result: read it one step late, or copy it "
        "to pinned "
        "memory with non_blocking=True.",
        edits=[Remove(waits), Scale(tasks, 0.5), ShrinkGaps(tasks, 0.5)],
        least=[Remove(waits)],
        confidence="medium",
    )


@rule("scalar-sync", "host", item="training.logging-sync", on="device")
def scalar_sync(evidence: Evidence) -> Iterator[Draft]:
    """.item(), float() or bool() of a device's tensor: the host waits until the device has caught up."""
    yield from _waits_under(
        evidence,
        _READS,
        "A number is read from the device, and the host waits for it",
        "Keep it a tensor and read it every n steps, or copy it to pinned memory with non_blocking=True "
        "and look a step "
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
    rows = np.intersect1d(in_window(evidence, Kind.RUNTIME), np.flatnonzero(evidence.trace.named(*SYNCS)))
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
                f"The host waits {many(len(waits) / len(evidence.steps), 'time')} in a step, "
                f"{duration(waited)} in all; "
                f"the device is idle for {percent(idle_share(evidence))} of the step.",
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
        in_window(evidence, Kind.RUNTIME),
        np.flatnonzero(evidence.trace.named("cudaDeviceSynchronize", "hipDeviceSynchronize")),
    )
    rows = rows[evidence.places.inside[rows] < 0]
    if len(rows) < len(evidence.steps):
        return
    waited = float(evidence.trace.duration[rows].sum()) / len(evidence.steps)
    line = busiest_line(evidence, rows)
    yield Draft(
        title="The host waits for the whole device in every step",
        line=line,
        evidence=[
            f"cudaDeviceSynchronize runs {many(len(rows) / len(evidence.steps), 'time')} in a step: "
            f"{duration(waited)}."
        ],
        fix="Leave torch.cuda.synchronize() out; for timing use events and read them later.",
        edits=[Remove(evidence.traced.tasks_of(rows))],
        confidence="high",
        diff=_without_wait(evidence, line),
    )


def _without_wait(evidence: Evidence, line: Line | None) -> str | None:
    """The file without the calls on a line that only wait for the device."""
    source = evidence.source(line) if line is not None else None
    if source is None or line is None:
        return None
    gone = [source.without_call(call) for call in source.torch_calls_on(line.line, "cuda.synchronize")]
    return source.diff([one for one in gone if one is not None])


@rule("allocating-in-the-step", "host", item="memory.expandable-segments", on="device")
def allocating_in_the_step(evidence: Evidence) -> Iterator[Draft]:
    """cudaMalloc, cudaFree or pinning of memory in steady steps."""
    names = (
        "cudaMalloc",
        "cudaFree",
        "cudaHostAlloc",
        "cudaFreeHost",
        "cudaHostRegister",
        "cuMemCreate",
        "cuMemMap",
    )
    rows = np.intersect1d(in_window(evidence, Kind.RUNTIME), np.flatnonzero(evidence.trace.named(*names)))
    if len(rows) < len(evidence.steps):
        return
    cost = float(evidence.trace.duration[rows].sum()) / len(evidence.steps)
    yield Draft(
        title="Memory is taken from the driver and given back in every step",
        line=busiest_line(evidence, rows),
        evidence=[
            f"{many(len(rows) / len(evidence.steps), 'call')} of "
            f"{', '.join(sorted({evidence.name(r) for r in rows.tolist()}))} "
            f"in a step: {duration(cost)}; cudaFree also waits for the device.",
        ],
        fix="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, drop torch.cuda.empty_cache(), and pin "
        "memory once.",
        edits=[Remove(evidence.traced.tasks_of(rows))],
        confidence="high",
    )
