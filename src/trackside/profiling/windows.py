"""Which part of a run is watched how: warm-up, true timing, trace, attribution; decided as steps end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Limits", "Stage", "Window", "Windows"]


class Stage(Enum):
    """What is done to the program's steps."""

    WARM = "warm"
    TIMED = "A"
    """Nothing but the hook at the end of a step."""
    TRACED = "T"
    """The profiler, without stacks."""
    ATTRIBUTED = "B"
    """The profiler and the line log: shares only."""
    DONE = "done"


_AFTER = {
    Stage.WARM: Stage.TIMED,
    Stage.TIMED: Stage.TRACED,
    Stage.TRACED: Stage.ATTRIBUTED,
    Stage.ATTRIBUTED: Stage.DONE,
}


@dataclass(frozen=True)
class Limits:
    """What the user asked for; None leaves it to the program's own pace."""

    warmup: int | None = None
    """Steps before anything is timed."""
    steps: int | None = None
    """Steps of each window."""
    seconds: float | None = None
    """How long a window lasts, instead."""


@dataclass(frozen=True)
class _Pace:
    """A window ends after so many steps at least, once they took so long or are so many."""

    fewest: int
    seconds: float
    most: int


# Short programs are the harder ones: 2 + 3 + 2 + 2 steps are enough for an answer.
_PACES = {
    Stage.TIMED: _Pace(3, 1.5, 50),
    Stage.TRACED: _Pace(2, 0.5, 10),
    Stage.ATTRIBUTED: _Pace(2, 0.5, 5),
}
# Warm is a program of which two steps in a row take no longer than this many times the best so far.
_SETTLED, _FEWEST_WARM, _MOST_WARM, _WARM_SECONDS = 1.3, 2, 20, 60.0


@dataclass
class Window:
    """The steps of one stage."""

    stage: Stage
    began_ns: int
    ends_ns: list[int] = field(default_factory=list)
    """When each of its steps ended."""

    @property
    def steps_ns(self) -> list[int]:
        times = [self.began_ns, *self.ends_ns]
        return [after - before for before, after in zip(times, self.ends_ns, strict=False)]


class Windows:
    """Follows a program step by step."""

    def __init__(self, limits: Limits, now_ns: int) -> None:
        self._limits = limits
        self.past: list[Window] = []
        self.now = Window(Stage.WARM, now_ns)

    @property
    def stage(self) -> Stage:
        return self.now.stage

    def step_ended(self, now_ns: int) -> Stage:
        """Count a step; returns the stage that the next step belongs to. Who changes it calls `begin`."""
        if self.stage is Stage.DONE:
            return Stage.DONE
        self.now.ends_ns.append(now_ns)
        return _AFTER[self.stage] if self._is_over() else self.stage

    def begin(self, stage: Stage, now_ns: int) -> None:
        """From now on steps belong to another stage; what was done in between belongs to none."""
        self.past.append(self.now)
        self.now = Window(stage, now_ns)

    def _is_over(self) -> bool:
        window, limits = self.now, self._limits
        count = len(window.ends_ns)
        seconds = (window.ends_ns[-1] - window.began_ns) / 1e9
        if window.stage is Stage.WARM:
            if limits.warmup is not None:
                return count >= limits.warmup
            return _is_warm(window.steps_ns) or count >= _MOST_WARM or seconds >= _WARM_SECONDS
        if limits.steps is not None:
            return count >= limits.steps
        pace = _PACES[window.stage]
        if limits.seconds is not None:
            return count >= 1 and seconds >= limits.seconds
        return count >= pace.most or (count >= pace.fewest and seconds >= pace.seconds)


def _is_warm(steps_ns: list[int]) -> bool:
    if len(steps_ns) <= _FEWEST_WARM:
        return False
    best = min(steps_ns)
    return max(steps_ns[-_FEWEST_WARM:]) <= _SETTLED * best
