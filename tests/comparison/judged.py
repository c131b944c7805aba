"""One crew of real processes for many trials; the fixtures are conftest's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from trackside.comparison.trial import Crew
from trackside.records.errors import TracksideError

# Longer than loading a file takes on a busy machine; and for what hangs, no longer than needs be.
BUILD_SECONDS, HANG_SECONDS = 10.0, 2.0
PASSES = "inconclusive"


@dataclass
class Judged:
    """How one trial ended."""

    verdict: str
    reason: str
    record: dict[str, Any]
    error: TracksideError | None = None

    @property
    def failed(self) -> list[str]:
        return [c["id"] for c in self.record["checks"] if c["status"] == "fail"]


@contextmanager
def seen_before_the_sweep(crew: Crew) -> Iterator[list[int]]:
    """Strangers that are there at the end of a trial, before what it left behind is ended."""
    seen: list[int] = []
    sweep = crew.fleet.sweep

    def look() -> None:
        seen.extend(crew.fleet.strangers(crew.fleet._watched))
        sweep()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew.fleet, "sweep", look)
        yield seen
