"""Which part of a run is watched how: warm-up, true timing, trace, attribution.

Decided as steps end; for a program without steps, as time goes by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

__all__ = ["MAX_TRACE", "Limits", "Stage", "Stretches", "Window", "Windows"]


class Stage(Enum):
    """What is done to the program's steps."""

    WARM = "warm"
    TIMED = "A"
    """Nothing but the hook at the end of a step."""
    NOTED = "N"
    """What operators are called with is noted; by the clock only, by steps that is done in warm-up."""
    LOGGED = "L"
    """The line log alone: what a line takes of a step that nothing else stretches."""
    TRACED = "T"
    """The profiler, without stacks."""
    ATTRIBUTED = "B"
    """The profiler and the line log, which tells whose each event is."""
    KEPT = "K"
    """As timed, but the heap keeps what is freed: only where a step takes memory anew."""
    DONE = "done"


_AFTER = {
    Stage.WARM: Stage.TIMED,
    Stage.TIMED: Stage.LOGGED,
    Stage.NOTED: Stage.LOGGED,
    Stage.LOGGED: Stage.TRACED,
    Stage.TRACED: Stage.ATTRIBUTED,
    Stage.ATTRIBUTED: Stage.DONE,
    Stage.KEPT: Stage.DONE,
}


def _after(stage: Stage, with_kept: bool) -> Stage:
    return Stage.KEPT if with_kept and stage is Stage.ATTRIBUTED else _AFTER.get(stage, Stage.DONE)


MAX_TRACE = 500_000_000
"""Bytes of a trace: the program's process needs some six times that when it is written."""


@dataclass(frozen=True)
class Limits:
    """What the user asked for; None leaves it to the program's own pace."""

    warmup: int | None = None
    """Steps before anything is timed."""
    steps: int | None = None
    """Steps of each window; of those with the line log alone, or with memory kept, half as many."""
    seconds: float | None = None
    """How long a window lasts, instead."""
    fixed: bool = False
    """Steps are counted by numbers set beforehand: those of several ranks must be the same ones."""
    max_trace: int = MAX_TRACE
    """Bytes that the trace may come to; windows end early for it."""


@dataclass(frozen=True)
class _Pace:
    """A window ends after so many steps at least, once they took so long or are so many."""

    fewest: int
    seconds: float
    most: int


# Short programs are the harder ones: 2 + 3 + 1 + 2 + 2 steps are enough for an answer.
_PACES = {
    Stage.TIMED: _Pace(3, 1.5, 50),
    Stage.LOGGED: _Pace(1, 0.5, 10),
    Stage.TRACED: _Pace(2, 0.5, 10),
    Stage.ATTRIBUTED: _Pace(2, 0.5, 5),
    Stage.KEPT: _Pace(2, 0.7, 20),
}
# Of one of several ranks: what it waits for must not be another's tracing, so no rank decides by itself.
_FIXED = {Stage.WARM: 5, Stage.TIMED: 10, Stage.LOGGED: 3, Stage.TRACED: 10, Stage.ATTRIBUTED: 3}
# By the clock, a window that one of them began late has this part of its length at least.
_LEAST_PART = 0.5
# Warm is a program of which two steps in a row take no longer than this many times the best so far.
_SETTLED, _FEWEST_WARM, _MOST_WARM, _WARM_SECONDS = 1.3, 2, 20, 60.0
# A traced window whose steps have ceased ends after so long, or so many of the longest steps.
_LONGEST_S, _LONGEST_STEPS = 60.0, 4


@dataclass
class Window:
    """The steps of one stage."""

    stage: Stage
    began_ns: int
    ends_ns: list[int] = field(default_factory=list)
    """When each of its steps ended."""
    closed_ns: int | None = None
    """When what ran on a device had ended too."""
    cut: bool = False
    """Steps ceased in it, by the program's end as a rule: what came behind the last is no step's."""
    progress: list[tuple[int, int]] = field(default_factory=list)
    """Without steps: times, and how far the program's own Python work had come."""
    core_ns: list[tuple[int, int, int]] = field(default_factory=list)
    """Timed, with lines alone or traced, at its beginning and end: the time, how long its thread had until
    then run on a core, and how long it had stood ready to run."""
    faults: list[int] = field(default_factory=list)
    """At its beginning and end: page faults of the process until then."""
    heap_told: bool = False
    """Whether the heap had been told to keep memory before it began."""

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
        self.by_time = False
        """Whether they were changed by the clock, and have no steps."""
        self.with_kept = False
        """Whether a window in which the heap keeps memory is to follow."""
        self._met = not limits.fixed
        """Whether ranks are in step again after the profiler was started, which takes some longer."""

    @property
    def stage(self) -> Stage:
        return self.now.stage

    @property
    def following(self) -> Stage:
        return _after(self.stage, self.with_kept and not self._limits.fixed)

    def step_ended(self, now_ns: int) -> Stage:
        """Count a step; returns the stage that the next step belongs to. Who changes it calls `begin`."""
        if self.stage is Stage.DONE:
            return Stage.DONE
        if self.stage is Stage.TRACED and not self._met:
            self._met = True
            self.now.began_ns = now_ns
            return self.stage
        self.now.ends_ns.append(now_ns)
        return self.following if self._is_over() else self.stage

    def begin(self, stage: Stage, now_ns: int) -> None:
        """From now on steps belong to another stage; what was done in between belongs to none."""
        self.past.append(self.now)
        self.now = Window(stage, now_ns)

    def is_stuck(self, now_ns: int) -> bool:
        """Whether steps have ceased in a window that must not go on for ever."""
        if self.stage not in (Stage.LOGGED, Stage.TRACED, Stage.ATTRIBUTED, Stage.KEPT):
            return False
        longest = max((ns for window in (*self.past, self.now) for ns in window.steps_ns), default=0)
        return now_ns - self.now.began_ns > max(_LONGEST_S * 1e9, _LONGEST_STEPS * longest)

    def _is_over(self) -> bool:
        window, limits = self.now, self._limits
        count = len(window.ends_ns)
        seconds = (window.ends_ns[-1] - window.began_ns) / 1e9
        asked = limits.steps
        if asked is not None and window.stage in (Stage.LOGGED, Stage.KEPT):
            # Half is enough for shares, and leaves a short program the rest.
            asked = (asked + 1) // 2
        if limits.fixed:
            asked = limits.warmup if window.stage is Stage.WARM else asked
            return count >= (_FIXED[window.stage] if asked is None else asked)
        if window.stage is Stage.WARM:
            if limits.warmup is not None:
                return count >= limits.warmup
            return _is_warm(window.steps_ns) or count >= _MOST_WARM or seconds >= _WARM_SECONDS
        if asked is not None:
            return count >= asked
        pace = _PACES[window.stage]
        if limits.seconds is not None:
            return count >= 1 and seconds >= limits.seconds
        return count >= pace.most or (count >= pace.fewest and seconds >= pace.seconds)


def _is_warm(steps_ns: list[int]) -> bool:
    if len(steps_ns) <= _FEWEST_WARM:
        return False
    best = min(steps_ns)
    return max(steps_ns[-_FEWEST_WARM:]) <= _SETTLED * best


@dataclass(frozen=True)
class _Round:
    """When it begins, in seconds since torch was imported, and how long each of its windows lasts."""

    begins: float
    timed: float
    noted: float
    logged: float
    traced: float
    attributed: float
    kept: float

    def lasts(self, stage: Stage) -> float:
        return {
            Stage.TIMED: self.timed,
            Stage.NOTED: self.noted,
            Stage.LOGGED: self.logged,
            Stage.TRACED: self.traced,
            Stage.ATTRIBUTED: self.attributed,
            Stage.KEPT: self.kept,
        }[stage]

    def ends(self, stage: Stage) -> float:
        """When a window should be over, in seconds since torch was imported."""
        return self.begins + sum(self.lasts(one) for one in _BY_TIME[: _BY_TIME.index(stage) + 1])


_BY_TIME = (Stage.TIMED, Stage.NOTED, Stage.LOGGED, Stage.TRACED, Stage.ATTRIBUTED, Stage.KEPT)
# Seconds in which it is noted what operators are called with: three steps of up to a sixth of a second.
_NOTING = 0.5
# Nobody knows how long a program will run. The first round serves one of a second or two, most of it untraced
# and with time for some turns to be noted; the second, longer and behind most programs' loading, replaces it,
# and only in it may the heap be told to keep memory, which cannot be undone. Several ranks have no windows in
# the first that are short beside what one of them may be late by.
_ROUNDS = (_Round(0.3, 0.3, 0.04, 0.06, 0.12, 0.12, 0.0), _Round(5.0, 1.5, _NOTING, 0.5, 0.7, 0.7, 0.7))
_RANKS_FIRST = _Round(0.3, 0.3, 0.0, 0.0, 0.25, 0.25, 0.0)


class Stretches:
    """The windows of a program without steps, by the clock, in rounds.

    Args:
        limits: what the user asked for.
        now_ns: when torch was imported.
        origin_ns: for one of several ranks, asked for the moment from which all count, None as long as that
            is open: then windows change at the same moments on all, whatever one of them was late for.
    """

    def __init__(
        self, limits: Limits, now_ns: int, origin_ns: Callable[[int], int | None] | None = None
    ) -> None:
        asked = limits.seconds
        # A second of warm-up at most: --seconds 10 is about the windows.
        usual = _ROUNDS if origin_ns is None else (_RANKS_FIRST, *_ROUNDS[1:])
        whole = usual if asked is None else (_asked(asked),)
        self._rounds = whole if limits.warmup != 0 else (_first_at_once(whole[0]), *whole[1:])
        self._began_ns = now_ns
        self._origin_ns = origin_ns
        self._done = 0
        self.with_kept = False
        """Whether a window in which the heap keeps memory is to follow; not on one of several ranks."""

    def seconds(self, now_ns: int) -> float:
        """Since torch was imported, on all ranks if there are several."""
        origin = self._began_ns if self._origin_ns is None else self._origin_ns(now_ns)
        return (now_ns - (self._began_ns if origin is None else origin)) / 1e9

    def due(self, window: Window, now_ns: int) -> Stage | None:
        """The stage that is to begin now, if another is; DONE ends a round."""
        if self._done >= len(self._rounds):
            return None
        if self._origin_ns is not None and self._origin_ns(now_ns) is None:
            return None
        if window.stage is Stage.WARM and self.seconds(now_ns) >= self._rounds[-1].begins:
            # Too late for a short one.
            self._done = len(self._rounds) - 1
        this = self._rounds[self._done]
        if window.stage in (Stage.WARM, Stage.DONE):
            return Stage.TIMED if self.seconds(now_ns) >= this.begins else None
        if not self._is_over(window, this, now_ns):
            return None
        following = Stage.NOTED if window.stage is Stage.TIMED else _after(window.stage, self.with_kept)
        while following is not Stage.DONE and not this.lasts(following):
            following = _AFTER[following]
        return following

    def _is_over(self, window: Window, this: _Round, now_ns: int) -> bool:
        lasted, lasts = (now_ns - window.began_ns) / 1e9, this.lasts(window.stage)
        if self._origin_ns is None:
            return lasted >= lasts
        # One that began late ends when those of the other ranks do, unless too little would be left of it.
        return self.seconds(now_ns) >= this.ends(window.stage) and lasted >= _LEAST_PART * lasts

    @property
    def in_last_round(self) -> bool:
        return self._done == len(self._rounds) - 1

    def round_ended(self) -> None:
        self._done += 1

    @property
    def over(self) -> bool:
        return self._done >= len(self._rounds)


def _asked(seconds: float) -> _Round:
    return _Round(min(seconds, 1.0), seconds, min(seconds, _NOTING), *[seconds] * 4)


def _first_at_once(one: _Round) -> _Round:
    return replace(one, begins=0.0)
