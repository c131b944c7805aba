"""Kineto's events as they are in its file, without our reader."""

from collections.abc import Iterable, Mapping
from typing import Any

from trackside.profiling.markers import MARKER_PREFIX


def raw_marker_spans(events: Iterable[Mapping[str, Any]]) -> list[tuple[str, int, int]]:
    """The host's markers: name, start and end in nanoseconds."""
    return [
        (event["name"], round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000))
        for event in events
        if event.get("cat") == "cpu_op" and event["name"].startswith(MARKER_PREFIX)
    ]
