"""What of a profile's record goes into its page: all of it, or what fits, with a note of what does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trackside.report.kernel_names import short_kernel

__all__ = ["fitted"]

# Longer texts are cut and say so: nobody reads more of a kernel's name.
_MOST_SIGNS = 2000
# What people copy is kept longer.
_COPIED = frozenset({"diff", "fix", "prove"})
_MOST_COPIED_SIGNS = 50_000
# A measured figure has no more digits than this; written out they double the page.
_DIGITS = 6
# Lines of source kept around each line with time, the first that is enough.
_SURROUNDINGS = (200, 60, 20, 5, 0)

Size = Callable[[Any], int]


def fitted(record: Mapping[str, Any], size: Size, room: int) -> dict[str, Any]:
    """The record as the page's script reads it, with a size of at most `room`.

    Spans become columns over a table of names, and sources become stretches of lines. `page_notes` says what
    was left out.
    """
    data: dict[str, Any] = {key: _plain(value, key) for key, value in record.items() if key != "timeline"}
    data["sources"] = {
        file: [[1, lines]] for file, lines in data.get("sources", {}).items() if isinstance(lines, list)
    }
    for kernel in data.get("kernels", ()):
        if (short := short_kernel(kernel["name"])) != kernel["name"]:
            kernel["short"] = short
    data["timeline"] = [_columns(lane) for lane in record.get("timeline", ())]
    notes: dict[str, str] = {}
    sizes = {key: size(value) for key, value in data.items()}
    tries = dict.fromkeys(data, 0)
    # Keys, colons and commas of the outermost object, and the notes.
    overhead = 4000 + sum(len(key) + 8 for key in data)
    while sum(sizes.values()) + overhead > room:
        key = max(sizes, key=lambda name: sizes[name])
        notes[key] = _shorten(data, key, tries[key])
        tries[key] += 1
        sizes[key] = size(data[key])
    data["page_notes"] = list(notes.values())
    return data


def _plain(value: Any, key: str = "") -> Any:
    if isinstance(value, str):
        most = _MOST_COPIED_SIGNS if key in _COPIED else _MOST_SIGNS
        return value if len(value) <= most else f"{value[:most]}… ({len(value) - most:,} more characters)"
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_plain(str(name)): _plain(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, key) for inner in value]
    return value


def _columns(lane: Mapping[str, Any]) -> dict[str, Any]:
    """A lane with its spans as columns; names and kinds are numbers in a list of their own."""
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(_plain(text), len(texts))

    # Longer first, so that what contains another comes before it.
    spans = sorted(lane["spans"], key=lambda span: (span[0], -span[1]))
    return {
        "name": _plain(lane["name"]),
        "device": lane["device"],
        "left_out": lane.get("left_out", 0),
        "start": [round(span[0], 2) for span in spans],
        "length": [round(span[1], 2) for span in spans],
        "kind": [number(span[2]) for span in spans],
        "text": [number(span[3]) for span in spans],
        "texts": list(texts),
    }


def _shorten(data: dict[str, Any], key: str, tried: int) -> str:
    """Take something out of one part; returns what is missing now, as a sentence."""
    if key == "sources" and tried < len(_SURROUNDINGS):
        around = _SURROUNDINGS[tried]
        data["sources"] = _near(data["sources"], data.get("lines", ()), around)
        return f"Source files: only lines with time and {around} around each are in this page."
    if key == "timeline" and any(lane["start"] for lane in data[key]):
        data[key] = [_longest_half(lane) for lane in data[key]]
        dropped = sum(lane["left_out"] for lane in data[key])
        return f"Timeline: {dropped:,} of the shortest spans are not in this page."
    if key in ("kernels", "lines", "modules", "memory", "findings", "trust", "ranks") and data[key]:
        if key == "memory":
            data[key] = [
                part | {"series": part["series"][::2], "lines": part["lines"][: len(part["lines"]) // 2]}
                for part in data[key]
            ]
            if tried < 8:
                return "Memory: the series has fewer points in this page than in the record."
        before = len(data[key])
        data[key] = data[key][: before // 2]
        if key == "kernels":
            data["kernels_left_out"] = data.get("kernels_left_out", 0) + before - len(data[key])
        return f"{key.capitalize()}: only the first {len(data[key]):,} are in this page."
    data[key] = type(data[key])() if data[key] is not None else None
    return f"{key.capitalize()}: too large for this page."


def _near(
    sources: Mapping[str, list[list[Any]]], lines: Iterable[Mapping[str, Any]], around: int
) -> dict[str, list[list[Any]]]:
    """Stretches of each file within so many lines of one that has time."""
    wanted: dict[str, set[int]] = {}
    for line in lines:
        wanted.setdefault(line["file"], set()).update(range(line["line"] - around, line["line"] + around + 1))
    kept = {}
    for file, stretches in sources.items():
        numbers = wanted.get(file, set())
        found: list[list[Any]] = []
        for first, texts in stretches:
            for number, text in enumerate(texts, first):
                if number not in numbers:
                    continue
                if found and found[-1][0] + len(found[-1][1]) == number:
                    found[-1][1].append(text)
                else:
                    found.append([number, [text]])
        kept[file] = found
    return kept


def _longest_half(lane: Mapping[str, Any]) -> dict[str, Any]:
    length = lane["length"]
    kept = sorted(sorted(range(len(length)), key=lambda i: -length[i])[: len(length) // 2])
    texts = [lane["texts"][number] for i in kept for number in (lane["kind"][i], lane["text"][i])]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return {
        **lane,
        "left_out": lane["left_out"] + len(length) - len(kept),
        "start": [lane["start"][i] for i in kept],
        "length": [length[i] for i in kept],
        "kind": [numbers[lane["texts"][lane["kind"][i]]] for i in kept],
        "text": [numbers[lane["texts"][lane["text"][i]]] for i in kept],
        "texts": list(numbers),
    }
