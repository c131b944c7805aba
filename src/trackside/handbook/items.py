"""Checklist items: one TOML file a family in `checklist/`, read into records and checked on the way."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["FAMILIES", "SIGNALS", "Family", "Item", "families", "items", "read_family"]

FOLDER = Path(__file__).parent / "checklist"

FAMILIES = (
    "system",
    "os",
    "driver",
    "containers",
    "gpu-state",
    "cpu-numa",
    "memory",
    "storage",
    "network",
    "pytorch",
    "compilation",
    "precision",
    "kernels",
    "attention",
    "training",
    "distributed",
    "serving",
    "kv-cache",
    "measurement",
    "cost-power",
)
"""In the order in which a machine is looked at: from the firmware up to the bill."""

SIGNALS = frozenset(
    {
        "gpu-idle",
        "host-bound",
        "launch-bound",
        "memory-bound",
        "compute-bound",
        "input-bound",
        "transfer-bound",
        "communication-bound",
        "synchronisation",
        "fp32-matmul",
        "small-batch",
        "long-sequence",
        "out-of-memory",
        "slow-start",
        "first-token",
        "per-token",
        "throughput",
        "throttled",
        "unsteady",
        "cost",
    }
)
"""What a profile or a script can show; items name those for which they matter."""

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_WORKLOADS = frozenset({"training", "inference"})
_NEEDS = frozenset(
    {"gpu", "several-gpus", "several-nodes", "container", "kubernetes", "root", "datacenter-gpu"}
)
_WEIGHTS = (1, 2, 3)


@dataclass(frozen=True)
class Item:
    """One thing to check, why, and what to do about it."""

    id: str
    """`family.name`; stable, since findings and notes refer to it."""
    family: str
    title: str
    """What to do, as an imperative sentence without a full stop."""
    why: str
    """Two or three sentences: the mechanism, and what it costs."""
    when: str
    """For whom it matters, and when it does not."""
    check: str
    """How to see whether it holds here, with the command."""
    fix: str
    """What to change."""
    do: tuple[str, ...]
    """Exact commands, settings or code, one change each."""
    effect: str
    """What it brings, as far as the source says so."""
    source: str
    """Where the effect or the setting is documented."""
    seen: str
    """The day on which the source was looked at."""
    workloads: tuple[str, ...]
    needs: tuple[str, ...]
    signals: tuple[str, ...]
    weight: int
    """3 where it often costs tens of percent, 1 where it rarely matters."""
    related: tuple[str, ...]


@dataclass(frozen=True)
class Family:
    """Items that are looked at together."""

    name: str
    title: str
    about: str
    items: tuple[Item, ...]


@cache
def families() -> tuple[Family, ...]:
    """All families, in order."""
    return tuple(read_family(FOLDER / f"{name}.toml") for name in FAMILIES)


@cache
def items() -> dict[str, Item]:
    """All items by id."""
    return {item.id: item for family in families() for item in family.items}


def read_family(path: Path) -> Family:
    """One family's file.

    Raises:
        ValueError: an item lacks something, or names what there is not.
    """
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    name = path.stem
    found = tuple(_item(name, entry) for entry in document.get("item", []))
    twice = {item.id for item in found if sum(other.id == item.id for other in found) > 1}
    if twice:
        raise ValueError(f"{path.name}: two items are called {sorted(twice)[0]}")
    return Family(name, document["title"], document["about"].strip(), found)


def _item(family: str, entry: dict[str, Any]) -> Item:
    called = f"{family}.{entry.get('id', '?')}"
    known = {field.name for field in fields(Item)} - {"family"}
    if entry.keys() != known:
        wrong = ", ".join(sorted(entry.keys() ^ known))
        raise ValueError(f"{called}: keys missing or unknown: {wrong}")
    if not _ID.fullmatch(entry["id"]):
        raise ValueError(f"{called}: an id is lower-case words with hyphens")
    for key in ("title", "why", "when", "check", "fix", "effect", "source", "seen"):
        if not isinstance(entry[key], str) or not entry[key].strip():
            raise ValueError(f"{called}: {key} is empty")
    if not entry["do"] or not all(isinstance(line, str) and line.strip() for line in entry["do"]):
        raise ValueError(f"{called}: `do` names no command, setting or code")
    if not entry["source"].startswith("https://"):
        raise ValueError(f"{called}: source is no https address")
    for key, allowed in (("workloads", _WORKLOADS), ("needs", _NEEDS), ("signals", SIGNALS)):
        unknown = set(entry[key]) - allowed
        if unknown:
            raise ValueError(
                f"{called}: {key} has {', '.join(sorted(unknown))}; there are {', '.join(sorted(allowed))}"
            )
    if entry["weight"] not in _WEIGHTS:
        raise ValueError(f"{called}: weight is one of {_WEIGHTS}")
    lists = {key: tuple(entry[key]) for key in ("do", "workloads", "needs", "signals", "related")}
    texts = {key: value.strip() for key, value in entry.items() if isinstance(value, str)}
    return Item(**{**texts, **lists, "weight": entry["weight"], "id": called, "family": family})
