"""Rules about input: waiting for batches, and how batches are put together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trackside.diagnose.evidence import Evidence
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.source import Source
from trackside.diagnose.wording import count, percent
from trackside.machine.doctor.script import Argument, Call
from trackside.profiling.line_stacks import Line
from trackside.records.durations import duration

__all__: list[str] = []

_ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter"
_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter"
_LOADER = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
# Getting a batch from a worker: a message, mapped memory, a tensor around it.
_HAND_OVER_NS = 300_000
_MOST_WORKERS = 4


@rule("loading-in-the-loop", "input", item="storage.num-workers")
def loading_in_the_loop(evidence: Evidence) -> Iterator[Draft]:
    """A DataLoader that makes each batch in the program's own process, while nothing else is done."""
    ranges = evidence.annotations(_ALONE)
    if not len(ranges):
        return
    load = evidence.ranges_ns(ranges)
    rest = evidence.step_ns - load
    if load < 0.05 * evidence.step_ns or evidence.machine.cpus < 2:
        return
    workers = min(_MOST_WORKERS, evidence.machine.cpus - 1 or 1)
    # What the workers do not get done while the step computes is still waited for.
    left = min(load, max(0.0, load / workers - rest) + _HAND_OVER_NS)
    factor = left / load
    calls = _loader_calls(evidence)
    source_diff = _with_workers(calls, workers)
    yield Draft(
        title="Batches are made in the training loop itself",
        line=evidence.places.caller(int(ranges[0])),
        evidence=[
            f"Making a batch takes {duration(load)} of a step of {duration(evidence.step_ns)} "
            f"({percent(load / evidence.step_ns)}), in which nothing is computed.",
            f"The rest of the step takes {duration(rest)}: {workers} worker{'s' if workers > 1 else ''} on "
            "the "
            f"{evidence.machine.cpus} processors can make the next batch meanwhile.",
        ],
        fix=f"Give the DataLoader num_workers={workers} and persistent_workers=True.",
        edits=evidence.ranges_shrunk(ranges, min(1.0, factor + 0.1)),
        least=evidence.ranges_shrunk(ranges, min(1.0, 0.5 + factor / 2)),
        most=evidence.ranges_shrunk(ranges, factor),
        diff=source_diff,
    )


def _loader_calls(evidence: Evidence) -> list[tuple[Source, Call]]:
    return [
        (source, call) for source in evidence.sources.values() for call in source.script.exactly(*_LOADER)
    ]


def _with_workers(calls: list[tuple[Source, Call]], workers: int) -> str | None:
    if len(calls) != 1 or calls[0][1].has("persistent_workers"):
        return None
    source, call = calls[0]
    several = source.with_argument(call, "num_workers", str(workers))
    return source.diff([several._replace(text=f"{several.text[:-1]}, persistent_workers=True)")])


@rule("samples-one-by-one", "input", item="storage.shards")
def samples_one_by_one(evidence: Evidence) -> Iterator[Draft]:
    """A batch put together from samples that all lie in one tensor."""
    ranges = evidence.annotations(_ALONE)
    rows = evidence.within(evidence.ops("aten::select"), ranges)
    stacks = evidence.within(evidence.ops("aten::stack"), ranges)
    per_batch = len(rows) / max(1, len(ranges))
    if per_batch < 16 or not len(stacks) or evidence.workbench is None:
        return
    shape = evidence.shape(int(rows[0]))
    tensors = max(1, round(len(stacks) / len(ranges)))
    samples = round(per_batch / tensors)
    setup = (
        f"from torch.utils.data import DataLoader, TensorDataset\ndata = [torch.rand({shape}) for _ in "
        f"range({tensors})]\n"
        f"whole = TensorDataset(*data); order = torch.randperm({shape[0]})[:{samples}].tolist()\n"
        "collate = torch.utils.data.default_collate\n"
    )
    ratio = evidence.workbench.ratio(
        setup, "collate([whole[i] for i in order])", "[x[torch.tensor(order)] for x in data]", on_host=True
    )
    load = evidence.ranges_ns(ranges)
    if ratio is None or ratio.host > 0.8:
        return
    yield Draft(
        title=f"Batches are put together from {samples} samples, one at a time",
        line=evidence.places.caller(int(ranges[0])),
        evidence=[
            f"A batch takes {count(per_batch)} selections from tensors of {shape[0]} samples and {tensors} "
            f"stack{'s' if tensors > 1 else ''}: {duration(load)} of a step of {duration(evidence.step_ns)} "
            f"({percent(load / evidence.step_ns)}).",
            f"Taking the same samples with one index was measured here to take {ratio}.",
        ],
        fix="Index whole batches: DataLoader(data, sampler=BatchSampler(RandomSampler(data), size, False), "
        "batch_size=None), or data[indices] in a loop of your own.",
        edits=evidence.ranges_shrunk(ranges, ratio.host),
        least=evidence.ranges_shrunk(ranges, min(1.0, 2 * ratio.host)),
        confidence="high",
    )


@rule("workers-started-again", "input", item="storage.persistent-workers")
def workers_started_again(evidence: Evidence) -> Iterator[Draft]:
    """Loader workers that end with every epoch and are started anew for the next."""
    ranges = evidence.annotations(_WORKERS)
    calls = [(source, call) for source, call in _loader_calls(evidence) if _ends_workers(source, call)]
    line = evidence.places.caller(int(ranges[0])) if len(ranges) else None
    if line is None or not calls:
        return
    # A loader draws a seed as it starts its workers; what is fetched next is an epoch's first batch.
    seeds = [row for row in evidence.ops("aten::random_").tolist() if evidence.places.caller(row) == line]
    after = np.searchsorted(ranges, seeds)
    first = np.unique(ranges[after[after < len(ranges)]])
    others = np.setdiff1d(ranges, first)
    if not len(first) or not len(others):
        return
    length = float(evidence.trace.duration[first].mean())
    usual = min(length, float(evidence.trace.duration[others].min()))
    step = evidence.before_as_traced.step_ns
    cost = (length - usual) * len(first) / len(evidence.steps)
    if cost < 0.03 * step:
        return
    source, call = calls[0]
    own: set[Line] = {line} if line is not None else set()
    yield Draft(
        title="Loader workers are started again for every epoch",
        line=line,
        evidence=[
            f"An epoch's first batch is waited for {duration(length)}, others only {duration(usual)}; "
            f"{len(first)} epochs "
            f"began in {len(evidence.steps)} steps.",
            f"That is {duration(cost)} of a step of {duration(step)} on average ({percent(cost / step)}).",
        ],
        fix="Give the DataLoader persistent_workers=True.",
        edits=[
            *evidence.ranges_shrunk(first, min(1.0, usual / length)),
            *evidence.python_shrunk(own, 0.3),
        ],
        least=evidence.ranges_shrunk(first, 0.5),
        rare=True,
        diff=source.diff([source.with_argument(call, "persistent_workers", "True")]),
    )


def _ends_workers(source: Source, call: Call) -> bool:
    workers = source.script.read(call.expression("num_workers", 5))
    return workers not in (0, Argument.ABSENT) and source.script.read(
        call.expression("persistent_workers")
    ) in (False, Argument.ABSENT)
