"""Which checklist items matter most for a workload: what probes found, then what its script hints at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from trackside.handbook.items import Item, items
from trackside.machine.doctor.probe import Finding
from trackside.machine.doctor.probes.containers import find_container
from trackside.machine.doctor.script import Script
from trackside.machine.doctor.system import System, Unreadable

__all__ = ["Relevance", "most_relevant", "script_signals", "workloads_of"]

# A found defect outweighs any hint; three hints weigh as much as the step from rare to frequent.
_POINTS = {"fail": 9.0, "warn": 6.0}
_POINTS_OF_SIGNAL, _MOST_SIGNALS = 1.0, 3

_SIGNAL_CALLS = {
    "input-bound": ("DataLoader", "load_dataset", "WebDataset", "ImageFolder"),
    "communication-bound": (
        "DistributedDataParallel",
        "FullyShardedDataParallel",
        "fully_shard",
        "all_reduce",
    ),
    "synchronisation": ("item", "tolist", "synchronize"),
    "per-token": ("generate", "scaled_dot_product_attention"),
    "first-token": ("generate",),
    "long-sequence": ("scaled_dot_product_attention", "MultiheadAttention"),
    "transfer-bound": ("cuda", "pin_memory"),
    "slow-start": ("compile", "from_pretrained"),
}
_TRAINING_CALLS = ("backward", "zero_grad", "Trainer", "SFTTrainer", "fit")
_INFERENCE_CALLS = ("generate", "inference_mode", "no_grad", "LLM", "pipeline")


@dataclass(frozen=True, slots=True)
class Relevance:
    item: Item
    because: str


def most_relevant(system: System, findings: Iterable[Finding], count: int = 10) -> list[Relevance]:
    """The items to look at first, for the script that was given, on this machine."""
    script = system.script
    if script is None:
        return []
    hints, kinds, met = script_signals(script), workloads_of(script), _needs_met(system, script)
    worst: dict[str, Finding] = {}
    settled: set[str] = set()
    for one in findings:
        if one.outcome.status in _POINTS:
            worst.setdefault(one.item.id, one)
        elif one.outcome.status in ("pass", "not_applicable"):
            settled.add(one.item.id)
    scored: list[tuple[float, int, Relevance]] = []
    for item in items().values():
        finding = worst.get(item.id)
        if finding is None and (item.id in settled or not set(item.needs) <= met):
            continue
        if kinds and item.workloads and not kinds & set(item.workloads):
            continue
        shared = sorted(hints & set(item.signals))
        if finding is None and not shared:
            continue
        points = item.weight + _POINTS_OF_SIGNAL * min(len(shared), _MOST_SIGNALS)
        points += _POINTS[finding.outcome.status] if finding else 0.0
        scored.append((-points, len(scored), Relevance(item, _because(finding, shared))))
    return [relevance for _, _, relevance in sorted(scored)[:count]]


def script_signals(script: Script) -> set[str]:
    """What a script hints at without having run."""
    return {signal for signal, names in _SIGNAL_CALLS.items() if script.named(*names)}


def workloads_of(script: Script) -> set[str]:
    """`training`, `inference` or both; empty where neither can be told."""
    kinds = {"training"} if script.named(*_TRAINING_CALLS) else set()
    if script.named(*_INFERENCE_CALLS) and not kinds:
        kinds.add("inference")
    return kinds


def _needs_met(system: System, script: Script) -> set[str]:
    """What items may presuppose here; of what cannot be told, that it is not there."""
    met = {"root"}
    try:
        gpus = len(system.gpus)
    except Unreadable:
        gpus = 0
    if gpus:
        met |= {"gpu", "datacenter-gpu"}
    if gpus > 1:
        met.add("several-gpus")
    if script.named("init_process_group"):
        met |= {"several-gpus", "several-nodes"}
    with contextlib.suppress(Unreadable):
        container = find_container(system)
        if container:
            met.add("container")
        if container == "Kubernetes":
            met.add("kubernetes")
    return met


def _because(finding: Finding | None, shared: list[str]) -> str:
    if finding is None:
        return f"the script hints at {', '.join(shared)}"
    lines = finding.outcome.places
    where = f" ({', '.join(lines[:2])}{', …' if len(lines) > 2 else ''})" if lines else ""
    return f"found {finding.outcome.found}{where}"
