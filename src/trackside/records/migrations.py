"""From the schemas of older releases to those of today, one step at a time; a newer one is refused by name.

Also without Pydantic: the store lists records by way of it, and a list must be quick.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from trackside.records.errors import TracksideError

__all__ = ["CURRENT", "MIGRATIONS", "Migration", "is_newer", "migrated", "schema_of"]

Document = dict[str, Any]
Migration = Callable[[Document], Document]
"""Gets a record of one version, returns it in the next; the caller sets the new schema."""

CURRENT: Final[Mapping[str, int]] = {
    "ceilings": 1,
    "check": 1,
    "compare": 1,
    "doctor": 1,
    "machine": 1,
    "profile": 1,
    "profile-diff": 1,
    "selfcheck": 1,
    "verify": 1,
}
"""The version of each schema that this release writes. A name that is not here is nobody's to judge."""

_SCHEMA: Final = re.compile(r"trackside\.([a-z][a-z-]*)/(\d{1,9})")


def schema_of(record: Mapping[str, Any]) -> tuple[str, int] | None:
    """Name and version of a record's schema; None for what is no record of ours."""
    schema = record.get("schema")
    match = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
    return (match[1], int(match[2])) if match else None


def is_newer(record: Mapping[str, Any], current: Mapping[str, int] = CURRENT) -> bool:
    """Whether a later release wrote it, whose fields may mean something else."""
    found = schema_of(record)
    return found is not None and found[1] > current.get(found[0], found[1])


def migrated(
    record: Mapping[str, Any],
    migrations: Mapping[tuple[str, int], Migration] | None = None,
    current: Mapping[str, int] = CURRENT,
) -> Document:
    """The record as this release has it; the same one where nothing has changed since.

    Raises:
        TracksideError: kind `store`, when a newer release wrote it.
    """
    steps = MIGRATIONS if migrations is None else migrations
    document = dict(record)
    found = schema_of(document)
    if found is None:
        return document
    name, version = found
    wanted = current.get(name, version)
    if version > wanted:
        raise TracksideError(
            "store",
            f"found a record of schema trackside.{name}/{version}, which a newer Trackside wrote; needed: "
            f"trackside.{name}/{wanted} or older",
            "update Trackside to read it: pip install --upgrade trackside",
        )
    if version == 1 and _is_early(name, document):
        version = 0
    while version < wanted:
        step = steps.get((name, version))
        if step is None:
            raise TracksideError(
                "store",
                f"found a record of schema trackside.{name}/{version}; needed: trackside.{name}/{wanted}, "
                "and there is no way from the one to the other",
                "read it with the release of Trackside that wrote it, or run the command again",
            )
        try:
            document = step(dict(document))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TracksideError(
                "store",
                f"the record is not a whole trackside.{name}/{version} ({type(error).__name__}: {error})",
                "it may have been edited by hand: run the command again to get a fresh record",
            ) from error
        version += 1
        document["schema"] = f"trackside.{name}/{version}"
    return document


def _is_early(name: str, record: Document) -> bool:
    """Records of before 0.1 say version 1 and have other fields, by which they are told; here they are 0."""
    match name:
        case "ceilings":
            measured = record.get("ceilings")
            return isinstance(measured, list) and any(
                isinstance(one, dict) and "title" not in one for one in measured
            )
        case "doctor":
            return "findings" in record and "checks" not in record
        case "machine":
            return "facts" in record and "cpu" not in record
        case _:
            return False


def _ceilings_0(record: Document) -> Document:
    # What is now the title was the only name; the short names of today were not there.
    return record | {
        part: [{"title": one["name"]} | one for one in record.get(part, [])]
        for part in ("ceilings", "skipped")
    }


def _doctor_0(record: Document) -> Document:
    return record | {"checks": [{"id": one.pop("item"), **one} for one in map(dict, record.pop("findings"))]}


def _machine_0(record: Document) -> Document:
    facts, surroundings = dict(record.pop("facts")), dict(record.pop("surroundings"))
    states = {state.get("index"): state for state in record.pop("gpu_states")}
    gpus = [gpu | {"state": states.get(gpu.get("index"), {})} for gpu in facts["gpus"]]
    return record | facts | surroundings | {"gpus": gpus}


MIGRATIONS: Final[Mapping[tuple[str, int], Migration]] = {
    ("ceilings", 0): _ceilings_0,
    ("doctor", 0): _doctor_0,
    ("machine", 0): _machine_0,
}
"""Schema name and version → the step to the next version. A version that was ever stored stays here."""
