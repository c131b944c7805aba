"""The moment from which all ranks of a machine count, where their windows go by the clock.

Runs in the program's process. Each rank leaves the time at which it had imported torch; the last of them is
where all begin. Processes of one machine share the clock (CLOCK_MONOTONIC); those of another have their own.
"""

from __future__ import annotations

import os

__all__ = ["RankClock"]

# How long a rank waits for others to import torch, before it counts from its own moment.
_PATIENCE_NS = 30_000_000_000


class RankClock:
    """One rank's view of it.

    Args:
        folder: where the ranks of this machine leave their times.
        rank: this one.
        count: how many there are on this machine.
    """

    def __init__(self, folder: str, rank: int, count: int) -> None:
        self._folder, self._rank, self._count = folder, rank, count
        self._own_ns: int | None = None
        self._origin_ns: int | None = None

    def arrive(self, now_ns: int) -> None:
        """This rank has imported torch. Where that cannot be told to the others, it counts for itself."""
        self._own_ns = now_ns
        path = os.path.join(self._folder, str(self._rank))
        try:
            with open(f"{path}.part", "w", encoding="ascii") as file:
                file.write(str(now_ns))
            os.replace(f"{path}.part", path)
        except OSError:
            self._origin_ns = now_ns

    def origin_ns(self, now_ns: int) -> int | None:
        """The common moment; None while others are waited for."""
        if self._origin_ns is None and self._own_ns is not None:
            times = self._arrivals()
            if len(times) >= self._count:
                self._origin_ns = max(times)
            elif now_ns - self._own_ns > _PATIENCE_NS:
                self._origin_ns = self._own_ns
        return self._origin_ns

    def _arrivals(self) -> list[int]:
        try:
            names = [name for name in os.listdir(self._folder) if name.isdigit()]
            return [int(_text(os.path.join(self._folder, name))) for name in names]
        except (OSError, ValueError):
            return []


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
