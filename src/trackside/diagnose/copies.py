"""Rules about copies between host and device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trackside.diagnose.evidence import Evidence
from trackside.diagnose.loading import loader_calls
from trackside.diagnose.on_device import SYNCS, busiest_line, named, window
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.wording import count, many, percent
from trackside.records.durations import duration
from trackside.trace.edits import Remove, Scale
from trackside.trace.intervals import merged
from trackside.trace.links import launch_of
from trackside.trace.model import Kind

__all__: list[str] = []


@rule("pageable-copy", "input", item="storage.pinned-batches", on="device")
def pageable_copy(evidence: Evidence) -> Iterator[Draft]:
    """Batches copied to the device from ordinary memory: slow, and the host waits."""
    rows = named(evidence, Kind.COPY, "htod (pageable")
    rows = rows[evidence.trace.size[rows] >= 1 << 16]
    if not len(rows):
        return
    size = float(evidence.trace.size[rows].sum())
    time = float(evidence.trace.duration[rows].sum())
    now = size / max(1.0, time) * 1e9
    pinned = evidence.machine.ceilings.get("gpu.copy.host-to-device.pinned", 3 * now)
    calls = launch_of(evidence.trace, rows)
    waits = np.intersect1d(
        evidence.closure(evidence.places.inside[calls[calls >= 0]]),
        np.flatnonzero(evidence.trace.named(*SYNCS)),
    )
    factor = min(1.0, now / pinned)
    yield Draft(
        title="Batches are copied to the device from ordinary memory",
        line=busiest_line(evidence, calls[calls >= 0]),
        evidence=[
            f"{many(len(rows) / len(evidence.steps), 'copy', 'copies')} of a step with "
            f"{size / len(evidence.steps) / 1e6:.1f} MB from pageable memory, at {now / 1e9:.1f} GB/s; "
            f"pinned memory reaches {pinned / 1e9:.0f} GB/s.",
        ],
        fix="DataLoader(…, pin_memory=True), and .to(device, non_blocking=True).",
        edits=[Scale(evidence.traced.tasks_of(rows), factor), Remove(evidence.traced.tasks_of(waits))],
        least=[Scale(evidence.traced.tasks_of(rows), factor)],
        confidence="medium",
        diff=_with_pinned(evidence),
    )


def _with_pinned(evidence: Evidence) -> str | None:
    """The one loader of the program with pinned memory; its copies are not looked for."""
    calls = loader_calls(evidence)
    if len(calls) != 1 or calls[0][1].has("pin_memory"):
        return None
    source, call = calls[0]
    return source.diff([source.with_argument(call, "pin_memory", "True")])


@rule("exposed-copy", "input", item="pytorch.non-blocking-copies", on="device")
def exposed_copy(evidence: Evidence) -> Iterator[Draft]:
    """Copies to the device beside which nothing is computed."""
    rows = named(evidence, Kind.COPY, "htod")
    if not len(rows):
        return
    kernels = evidence.trace.of(Kind.KERNEL)
    computing = merged(evidence.trace.start[kernels], evidence.trace.end[kernels])
    copying = merged(evidence.trace.start[rows], evidence.trace.end[rows])
    begin, end = window(evidence)
    exposed = copying.within(begin, end).minus(computing).total
    if exposed < 0.02 * (end - begin):
        return
    hidden = 1 - exposed / max(1, copying.within(begin, end).total)
    tasks = evidence.traced.tasks_of(rows)
    calls = launch_of(evidence.trace, rows)
    waits = np.intersect1d(
        evidence.closure(np.unique(evidence.outer[calls[calls >= 0]])),
        np.flatnonzero(evidence.trace.named(*SYNCS)),
    )
    ahead = Remove(evidence.traced.tasks_of(waits))
    yield Draft(
        title="The device waits for its next batch to be copied",
        line=busiest_line(evidence, launch_of(evidence.trace, rows)),
        evidence=[
            f"For {duration(exposed / len(evidence.steps))} of a step a copy to the device runs and "
            "nothing else does "
            f"({percent(exposed / (end - begin))}).",
        ],
        fix="Copy the next batch on a stream of its own while this one is computed: with "
        "torch.cuda.stream(side): "
        "batch = batch.to(device, non_blocking=True).",
        # What hides behind the step before takes no time of this one.
        edits=[ahead, Scale(tasks, max(0.0, hidden))],
        least=[ahead, Scale(tasks, 0.5 + max(0.0, hidden) / 2)],
        confidence="medium",
    )


@rule("many-reads-back", "input", item="pytorch.small-transfers", on="device")
def many_reads_back(evidence: Evidence) -> Iterator[Draft]:
    """Several small copies from the device in one step."""
    rows = named(evidence, Kind.COPY, "dtoh")
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
        line=busiest_line(evidence, outer),
        evidence=[
            f"{count(per_step)} copies of a step bring at most 4 KB each from the device; each is a round "
            "trip.",
        ],
        fix="Collect them in one tensor and copy that: torch.stack([a, b, c]).tolist().",
        edits=[Remove(evidence.tasks(gone))],
        confidence="high",
    )


@rule("made-on-the-host", "input", item="pytorch.create-on-device", on="device")
def made_on_the_host(evidence: Evidence) -> Iterator[Draft]:
    """Tensors that are filled on the host and then moved, in every step."""
    makers = (
        "aten::randn",
        "aten::rand",
        "aten::zeros",
        "aten::ones",
        "aten::full",
        "aten::arange",
        "aten::randint",
    )
    copies = named(evidence, Kind.COPY, "htod")
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
        line=busiest_line(evidence, np.array([made for made, _ in pairs])),
        evidence=[
            f"{many(len(pairs) / len(evidence.steps), 'tensor')} of a step, made on the host and copied: "
            f"{duration(evidence.cost(both))} of {duration(evidence.step_ns)}.",
        ],
        fix="Make them where they are used: torch.zeros(…, device=device).",
        edits=evidence.shrunk(both, 0.1),
        confidence="high",
    )
