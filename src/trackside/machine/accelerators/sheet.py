"""The data sheet: one TOML file a vendor beside this module, read into records and checked on the way."""

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Final

from trackside.records.errors import TracksideError

__all__ = [
    "DTYPES",
    "FIGURES",
    "FOLDER",
    "Accelerator",
    "Figure",
    "accelerators",
    "find",
    "read_vendor",
    "simplified",
    "variants",
]

FOLDER: Final = Path(__file__).parent

DTYPES: Final = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
"""From wide to narrow."""

FIGURES: Final = ("memory", "bandwidth", "interconnect", "power", "price")
"""Every figure but the dense FLOP/s, which there is one of for each dtype."""

# What a unit in the files stands for. Vendors print GB for both; the files say what the source says.
_UNITS: Final[dict[str, dict[str, float]]] = {
    "B": {"MB": 1e6, "GB": 1e9, "GiB": 2.0**30},
    "B/s": {"GB/s": 1e9, "GiB/s": 2.0**30, "TB/s": 1e12, "PB/s": 1e15},
    "FLOP/s": {"TFLOP/s": 1e12},
    "OP/s": {"TOP/s": 1e12},
    "W": {"W": 1.0},
    "USD/h": {"USD/h": 1.0},
}
_UNIT_OF: Final = {
    "memory": "B",
    "bandwidth": "B/s",
    "interconnect": "B/s",
    "power": "W",
    "price": "USD/h",
}

# Beyond these a figure is a slip of units: from a chip without DRAM to a whole wafer.
_RANGES: Final = {
    "memory": (1e8, 1e12),
    "bandwidth": (1e11, 1e17),
    "interconnect": (1e10, 1e13),
    "power": (10.0, 50_000.0),
    "price": (0.05, 100.0),
    "dense": (1e11, 1e17),
}

# Sheets quote sparse figures, twice the dense ones. A sparse one among dense ones stands out by its ratio to
# a wider dtype: narrower (or integer) ÷ wider, the largest that hardware in the sheet has, and 10 % for
# rounding. 4 is the GeForce cards' and Groq's for int8 and Gaudi's for fp8, 3 Blackwell Ultra's for fp4.
_LARGEST_RATIOS: Final = {
    ("fp64", "fp32"): 1.0,
    ("fp16", "bf16"): 1.0,
    ("fp8", "bf16"): 2.0,
    ("fp8", "fp16"): 4.0,
    ("int8", "bf16"): 4.0,
    ("int8", "fp16"): 4.0,
    ("fp4", "fp8"): 3.0,
}
_ROUNDING: Final = 1.1

# Where all of them are sparse, the power gives it away: dense 16-bit FLOP/s a watt are 2.3e12 at most so far.
_LARGEST_PER_WATT: Final = 2.5e12

_ADDRESS: Final = re.compile(r"https://[a-z0-9.-]+\.[a-z]+/\S*")
_FIRST_SEEN: Final = date(2026, 1, 1)


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its source."""

    value: float
    unit: str
    """B, B/s, FLOP/s, OP/s, W or USD/h."""
    source: str
    """Public address."""
    seen: str
    """The day on which the source was looked at."""
    note: str = ""
    """What was done to the source's number, and what other sources say."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One row of the sheet. None, or a dtype left out, means that no source was found or there is no such."""

    name: str
    vendor: str
    architecture: str
    memory_type: str
    aliases: tuple[str, ...]
    device_names: tuple[str, ...]
    """What its driver calls it, to know it again on a machine."""
    note: str
    memory: Figure | None = None
    bandwidth: Figure | None = None
    interconnect: Figure | None = None
    """To others of its kind, both directions together."""
    power: Figure | None = None
    price: Figure | None = None
    dense: Mapping[str, Figure] = field(default_factory=dict)
    """FLOP/s (OP/s for int8) without sparsity, by dtype."""

    def figures(self) -> dict[str, Figure]:
        """Every figure by name; the dense ones are `dense.bf16` and so on."""
        found = {name: getattr(self, name) for name in FIGURES if getattr(self, name) is not None}
        return found | {f"dense.{dtype}": figure for dtype, figure in self.dense.items()}


@cache
def accelerators() -> tuple[Accelerator, ...]:
    """The whole sheet."""
    found = tuple(row for path in sorted(FOLDER.glob("*.toml")) for row in read_vendor(path))
    _names(found)
    return found


def read_vendor(path: Path) -> tuple[Accelerator, ...]:
    """One vendor's file.

    Raises:
        ValueError: a figure lacks its source or date, has another unit than it should, or cannot be true.
    """
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    _keys(path.name, document, {"vendor", "sources", "accelerator"}, set())
    sources = {name: _source(name, entry) for name, entry in document["sources"].items()}
    used: set[str] = set()
    rows = tuple(_row(document["vendor"], entry, sources, used) for entry in document["accelerator"])
    if sources.keys() != used:
        raise ValueError(f"{path.name}: no figure uses the source {sorted(sources.keys() - used)[0]}")
    return rows


def find(name: str) -> Accelerator:
    """The accelerator of that name or alias, whatever its case, spaces and hyphens.

    Raises:
        TracksideError: kind `not-found`, with the nearest names.
    """
    names = _names(accelerators())
    wanted = simplified(name)
    if wanted in names:
        return names[wanted]
    parts = [key for key in names if len(wanted) >= 2 and wanted in key]
    close = difflib.get_close_matches(wanted, names, n=12, cutoff=0.5)
    nearest = list(dict.fromkeys(names[key].name for key in [*close, *parts]))[:4]
    raise TracksideError(
        "not-found",
        f"found no accelerator named {name!r}; needed: one of the {len(accelerators())} in the sheet",
        f"nearest: {', '.join(nearest)}" if nearest else "`trackside gpus` lists them all",
    )


def variants(name: str, chosen: Accelerator) -> tuple[str, ...]:
    """Others that a short name such as `h100` could have meant."""
    wanted = simplified(name)
    if wanted == simplified(chosen.name):
        return ()
    return tuple(
        row.name for row in accelerators() if row != chosen and simplified(row.name).startswith(wanted)
    )


def simplified(name: str) -> str:
    """A name as names are compared: lower-case letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _names(rows: tuple[Accelerator, ...]) -> dict[str, Accelerator]:
    names: dict[str, Accelerator] = {}
    for row in rows:
        own = (row.name, *row.aliases, *row.device_names)
        for key in {simplified(text) for name in own for text in (name, f"{row.vendor} {name}")}:
            if key in names:
                raise ValueError(f"{row.name} and {names[key].name} are both called {key}")
            names[key] = row
    return names


def _row(
    vendor: str, entry: dict[str, Any], sources: dict[str, tuple[str, str]], used: set[str]
) -> Accelerator:
    called = str(entry.get("name", "?"))
    needed = {"name", "aliases", "device_names", "architecture", "memory_type", "memory", "bandwidth"}
    _keys(called, entry, needed, {"note", "interconnect", "power", "price", "dense"})
    dense = entry.get("dense", {})
    _keys(f"{called} dense", dense, set(), set(DTYPES))
    units = {name: _UNIT_OF[name] for name in FIGURES if name in entry}
    read = {
        name: _figure(f"{called} {name}", entry[name], unit, _RANGES[name], sources, used)
        for name, unit in units.items()
    }
    rates = {
        dtype: _figure(
            f"{called} {dtype}",
            dense[dtype],
            "OP/s" if dtype == "int8" else "FLOP/s",
            _RANGES["dense"],
            sources,
            used,
        )
        for dtype in DTYPES
        if dtype in dense
    }
    row = Accelerator(
        name=called,
        vendor=vendor,
        architecture=entry["architecture"],
        memory_type=entry["memory_type"],
        aliases=tuple(entry["aliases"]),
        device_names=tuple(entry["device_names"]),
        note=entry.get("note", ""),
        dense=rates,
        **read,
    )
    _plausible(row)
    return row


def _plausible(row: Accelerator) -> None:
    rates = {dtype: figure.value for dtype, figure in row.dense.items()}
    for (narrow, wide), ratio in _LARGEST_RATIOS.items():
        if narrow in rates and wide in rates and rates[narrow] > ratio * _ROUNDING * rates[wide]:
            raise ValueError(
                f"{row.name}: {narrow} is {rates[narrow] / rates[wide]:.1f} times {wide}, needed at most "
                f"{ratio:g}: is one of them sparse?"
            )
    half = max((rates[dtype] for dtype in ("bf16", "fp16") if dtype in rates), default=0.0)
    if row.power is not None and half > _LARGEST_PER_WATT * row.power.value:
        raise ValueError(f"{row.name}: {half / row.power.value:.2g} dense FLOP/s a watt: is it sparse?")


def _figure(
    called: str,
    entry: dict[str, Any],
    unit: str,
    allowed: tuple[float, float],
    sources: dict[str, tuple[str, str]],
    used: set[str],
) -> Figure:
    _keys(called, entry, {"value", "unit", "source"}, {"note"})
    if entry["unit"] not in _UNITS[unit]:
        raise ValueError(f"{called}: unit {entry['unit']!r}, needed one of {', '.join(_UNITS[unit])}")
    number = entry["value"]
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise ValueError(f"{called}: {number!r} is no number")
    value = number * _UNITS[unit][entry["unit"]]
    if not allowed[0] <= value <= allowed[1]:
        raise ValueError(f"{called}: {value:g} {unit}, needed {allowed[0]:g} to {allowed[1]:g}")
    if entry["source"] not in sources:
        raise ValueError(f"{called}: there is no source {entry['source']!r} in this file")
    used.add(entry["source"])
    address, seen = sources[entry["source"]]
    return Figure(value, unit, address, seen, entry.get("note", ""))


def _source(name: str, entry: dict[str, Any]) -> tuple[str, str]:
    _keys(f"source {name}", entry, {"url", "seen"}, set())
    if not isinstance(entry["url"], str) or not _ADDRESS.fullmatch(entry["url"]):
        raise ValueError(f"source {name}: {entry['url']!r} is no https address")
    seen = entry["seen"]
    if type(seen) is not date or not _FIRST_SEEN <= seen <= date.max:
        raise ValueError(f"source {name}: {seen} is no day since {_FIRST_SEEN}")
    return entry["url"], seen.isoformat()


def _keys(called: str, entry: Mapping[str, Any], needed: set[str], allowed: set[str]) -> None:
    wrong = (needed - entry.keys()) | (entry.keys() - needed - allowed)
    if wrong:
        raise ValueError(f"{called}: keys missing or unknown: {', '.join(sorted(wrong))}")
