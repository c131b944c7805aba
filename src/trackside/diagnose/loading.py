"""Rules about input: waiting for batches, and how batches are put together."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trackside.diagnose.evidence import Evidence
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.source import Source
from trackside.diagnose.wording import count, many, percent
from trackside.machine.doctor.script import Argument, Call
from trackside.profiling.line_stacks import Line
from trackside.records.durations import duration
from trackside.trace.model import Ints

__all__ = ["loader_calls"]

_ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter"
_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter"
_LOADER = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
# Getting a batch from a worker: a message, mapped memory, a tensor around it.
_HAND_OVER_NS = 300_000
# A batch that is there is handed over in less, on a busy machine too.
_WAITED_NS = 2_000_000
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
    calls = loader_calls(evidence)
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


def loader_calls(evidence: Evidence) -> list[tuple[Source, Call]]:
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


@rule("waiting-for-workers", "input", item="storage.num-workers")
def waiting_for_workers(evidence: Evidence) -> Iterator[Draft]:
    """Loader workers that do not keep up: the step waits for them, and there are processors for more."""
    every = evidence.annotations(_WORKERS)
    line = evidence.places.caller(int(every[0])) if len(every) else None
    ranges = np.setdiff1d(every, _first_batches(evidence, every, line)) if line is not None else every
    calls = loader_calls(evidence)
    if not len(ranges) or len(calls) != 1:
        return
    source, call = calls[0]
    now = source.script.read(call.expression("num_workers", 5))
    cpus = evidence.machine.cpus
    wait = evidence.ranges_ns(ranges)
    rest = evidence.step_ns - wait
    usual = float(np.median(evidence.trace.duration[ranges]))
    if wait < 0.05 * evidence.step_ns or usual < _WAITED_NS:
        return
    if not isinstance(now, int) or not 1 <= now < cpus:
        return
    # Who is waited for in every step makes a batch in as many steps as there are workers.
    batch = now * evidence.step_ns
    workers = min(cpus, max(now + 1, math.ceil(batch / max(rest, _HAND_OVER_NS))))
    then = max(rest + _HAND_OVER_NS, batch / workers, (batch + rest) / cpus)
    factor = max(0.0, min(1.0, (then - rest) / wait))
    yield Draft(
        title=f"The step waits for {many(now, 'loader worker')}",
        line=line,
        evidence=[
            f"A batch is waited for {duration(wait)} of a step of {duration(evidence.step_ns)} "
            f"({percent(wait / evidence.step_ns)}), in which nothing is computed; the rest takes "
            f"{duration(rest)}.",
            f"{many(now, 'worker')} on {cpus} processors: making one batch takes about {duration(batch)}, so "
            f"{workers} would hand one over every {duration(then)}.",
        ],
        fix=f"Give the DataLoader num_workers={workers}, or make a sample cheaper.",
        edits=evidence.ranges_shrunk(ranges, min(1.0, factor + 0.1)),
        least=evidence.ranges_shrunk(ranges, min(1.0, 0.5 + factor / 2)),
        most=evidence.ranges_shrunk(ranges, factor),
        diff=source.diff([source.with_argument(call, "num_workers", str(workers))])
        if call.has("num_workers")
        else None,
    )


def _first_batches(evidence: Evidence, ranges: Ints, line: Line) -> Ints:
    """Those of the ranges in which an epoch's first batch is fetched.

    A loader draws a seed as it starts its workers; what is fetched next is the first.
    """
    seeds = [row for row in evidence.ops("aten::random_").tolist() if evidence.places.caller(row) == line]
    after = np.searchsorted(ranges, seeds)
    found: Ints = np.unique(ranges[after[after < len(ranges)]])
    return found


@rule("workers-started-again", "input", item="storage.persistent-workers")
def workers_started_again(evidence: Evidence) -> Iterator[Draft]:
    """Loader workers that end with every epoch and are started anew for the next."""
    ranges = evidence.annotations(_WORKERS)
    calls = [(source, call) for source, call in loader_calls(evidence) if _ends_workers(source, call)]
    line = evidence.places.caller(int(ranges[0])) if len(ranges) else None
    if line is None or not calls:
        return
    first = _first_batches(evidence, ranges, line)
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
