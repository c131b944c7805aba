"""What a probe is, which there are, and running them: worst first, and never with a traceback."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from trackside.handbook.items import Item, items
from trackside.machine.doctor.system import System, Unreadable

__all__ = [
    "STATUSES",
    "Finding",
    "Outcome",
    "Probe",
    "Status",
    "examine",
    "fails",
    "not_applicable",
    "passes",
    "probe",
    "probes",
    "unknown",
    "warns",
]

Status = Literal["fail", "warn", "unknown", "pass", "not_applicable"]
STATUSES: tuple[Status, ...] = ("fail", "warn", "unknown", "pass", "not_applicable")
"""Worst first."""

About: TypeAlias = Literal["machine", "script"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one probe saw."""

    status: Status
    found: str
    """What there is; for `unknown` and `not_applicable` the reason."""
    wanted: str = ""
    fix: tuple[str, ...] = ()
    """Exact commands or changes for what was found; without any the item's own hold."""
    places: tuple[str, ...] = ()
    """`file:line`, where it is in a script."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A program's answer to one checklist item."""

    item: str
    about: About
    look: Callable[[System], Outcome]


@dataclass(frozen=True, slots=True)
class Finding:
    """An item, and what its probe saw."""

    item: Item
    about: About
    outcome: Outcome

    @property
    def fix(self) -> tuple[str, ...]:
        return self.outcome.fix or self.item.do


def passes(found: str, wanted: str = "") -> Outcome:
    return Outcome("pass", found, wanted)


def warns(found: str, wanted: str, fix: Iterable[str] = (), places: Iterable[str] = ()) -> Outcome:
    return Outcome("warn", found, wanted, tuple(fix), tuple(places))


def fails(found: str, wanted: str, fix: Iterable[str] = (), places: Iterable[str] = ()) -> Outcome:
    return Outcome("fail", found, wanted, tuple(fix), tuple(places))


def unknown(why: str) -> Outcome:
    return Outcome("unknown", why)


def not_applicable(why: str) -> Outcome:
    return Outcome("not_applicable", why)


_registered: dict[tuple[str, About], Probe] = {}


def probe(
    item: str, about: About = "machine"
) -> Callable[[Callable[[System], Outcome]], Callable[[System], Outcome]]:
    """Makes a function the probe of an item, which may have one for the machine and one for scripts."""

    def register(look: Callable[[System], Outcome]) -> Callable[[System], Outcome]:
        if (item, about) in _registered:
            raise ValueError(f"{item} has a {about} probe already")
        _registered[item, about] = Probe(item, about, look)
        return look

    return register


@cache
def probes() -> tuple[Probe, ...]:
    """All there are, in the order of the checklist."""
    from trackside.machine.doctor import probes as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    order = {name: place for place, name in enumerate(items())}
    return tuple(sorted(_registered.values(), key=lambda one: (order[one.item], one.about)))


def examine(system: System, chosen: Iterable[Probe] | None = None) -> list[Finding]:
    """Run probes and say what they found, worst first, and what often costs most before the rest."""
    by_id = items()
    found = [
        Finding(by_id[one.item], one.about, _look(one, system))
        for one in (probes() if chosen is None else chosen)
    ]
    return sorted(found, key=lambda f: (STATUSES.index(f.outcome.status), -f.item.weight))


def _look(one: Probe, system: System) -> Outcome:
    if one.about == "script" and system.script is None:
        return not_applicable("no script was given")
    try:
        return one.look(system)
    except Unreadable as error:
        return unknown(str(error))
    except Exception as error:
        # A file in a shape that nobody foresaw costs one answer, not all.
        return unknown(f"the probe could not read what it found: {type(error).__name__}: {error}")
