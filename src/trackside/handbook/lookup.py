"""Checklist items and families by the names people type: whole, begun, or nearly right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from trackside.handbook.items import Family, Item, families, items
from trackside.records.errors import TracksideError

__all__ = ["find_family", "find_item", "nearest"]

# Enough to find oneself in, few enough for one line.
_SHOWN = 5


def find_item(reference: str) -> Item:
    """The item of that id, of that bare name, or the only one whose id begins so.

    Raises:
        TracksideError: kind `not-found`, when none or several fit.
    """
    known = items()
    if reference in known:
        return known[reference]
    wanted = reference.lower()
    named = [id_ for id_ in known if id_.partition(".")[2] == wanted]
    begun = [id_ for id_ in known if wanted and id_.startswith(wanted)]
    for fitting in (named, begun):
        if len(fitting) == 1:
            return known[fitting[0]]
    if wanted in {family.name for family in families()}:
        raise TracksideError(
            "not-found",
            f"found {reference!r}, which is a family; needed: the id of one item",
            f"trackside handbook list --family {wanted}",
        )
    if named or begun:
        fitting = named or begun
        what = "are called" if named else "begin with"
        more = f" and {len(fitting) - _SHOWN} more" if len(fitting) > _SHOWN else ""
        raise TracksideError(
            "not-found",
            f"found {len(fitting)} items that {what} {reference!r}: {', '.join(fitting[:_SHOWN])}{more}; "
            "needed: one",
            "give more of the id",
        )
    near = nearest(wanted, known)
    raise TracksideError(
        "not-found",
        f"found no item {reference!r} among {len(known)}; needed: an item's id, a unique beginning of it, or "
        f"its bare name{_perhaps(near)}",
        f"trackside handbook show {near[0]}" if near else "trackside handbook search WORDS",
    )


def find_family(name: str) -> Family:
    """The family of that name.

    Raises:
        TracksideError: kind `not-found`, when there is none.
    """
    by_name = {family.name: family for family in families()}
    if name in by_name:
        return by_name[name]
    near = nearest(name.lower(), by_name)
    # Without one that is like it there is no telling which was meant.
    told = _perhaps(near) if near else f": {', '.join(by_name)}"
    raise TracksideError(
        "not-found",
        f"found no family {name!r}; needed: one of the {len(by_name)} families{told}",
        f"trackside handbook list --family {near[0]}" if near else "trackside handbook list",
    )


def nearest(wanted: str, names: Iterable[str]) -> list[str]:
    """The names most like one that does not exist; part of a name counts as like it."""
    names = list(names)
    close = difflib.get_close_matches(wanted, names, n=_SHOWN)
    # By the bare name too: a right name in the wrong family is far from the whole id.
    bare = {name.rpartition(".")[2]: name for name in reversed(names)}
    close += [bare[name] for name in difflib.get_close_matches(wanted.rpartition(".")[2], bare, n=_SHOWN)]
    close += [name for name in names if len(wanted) > 2 and wanted in name]
    return list(dict.fromkeys(close))[:_SHOWN]


def _perhaps(near: Sequence[str]) -> str:
    return f"; nearest: {', '.join(near)}" if near else ""
