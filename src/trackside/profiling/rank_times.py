"""What each rank saw of itself, and all of it side by side: who works how long, and who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from pydantic import Field, ValidationError

from trackside.profiling.captured import Captured, read_capture
from trackside.profiling.line_rows import line_rows
from trackside.profiling.ranks import Awaited, Rank, ranks_named
from trackside.profiling.record import shown_path, step_in_view
from trackside.profiling.step_view import device_name
from trackside.profiling.verdict import ending
from trackside.records.base import Part
from trackside.records.durations import duration
from trackside.records.profile import Line, ProgramEnd, RankTimes, Trust

__all__ = [
    "LEAST_BY_ITSELF",
    "Lag",
    "RankSeen",
    "RanksSeen",
    "at_work_ms",
    "lag",
    "rank_seen",
    "side_by_side",
]

# Enough to find where one rank works longer than the others.
_MOST_LINES = 200
# Windows that began closer to each other than this are as good as simultaneous beside a step of a model.
_AT_ONCE_MS = 1.0
# From this share of a step on the others' waiting counts, and a rank that waits less than this part of what
# they do is one that they wait for.
_WAITING, _HARDLY = 0.1, 0.25
# It has to come last in so many of the steps: of ten, two even ranks have it by chance once in fifty runs.
_MOST_STEPS = 0.9
# Ranks with the same work differ by less than this in what they run on a core, also on a busy machine.
_MORE_WORK = 0.4
LEAST_BY_ITSELF = 0.5
"""From so much of it on, a lag is the program's own and not the machine's."""


class RankSeen(Part):
    """What one rank leaves for the first."""

    times: RankTimes
    lines: list[Line] = Field(default_factory=list)
    """The longest."""
    communication_ms: list[float] = Field(default_factory=list)
    """Of each traced step, what it spent in collectives beside which nothing was computed."""
    by_time: bool = False
    """Whether its windows went by the clock."""
    began_ns: dict[str, int] = Field(default_factory=dict)
    """When each of its windows began, on the clock of its machine."""
    missing: list[Trust] = Field(default_factory=list)
    """What its own capture could not have."""


@dataclass(frozen=True)
class RanksSeen:
    """All ranks that left something."""

    times: list[RankTimes] = field(default_factory=list)
    lines: Mapping[int, Sequence[Line]] = field(default_factory=dict)
    waiting_ms: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """Of each rank, what it waited for others in each step that all have traced.

    Of one mean step, where windows went by the clock.
    """
    trust: list[Trust] = field(default_factory=list)


def rank_seen(captured: Captured, rank: int, host: str, program: ProgramEnd | None, folder: str) -> RankSeen:
    """What a rank saw, from its own capture.

    Args:
        captured: as read from its folder.
        rank: its number.
        host: the machine it ran on.
        program: how it ended, if that is known.
        folder: its working directory; files below it are named from there.
    """
    step_ms, view = step_in_view(captured)
    timed = captured.window("A")
    core = captured.on_core if step_ms else None
    return RankSeen(
        times=RankTimes(
            rank=rank,
            host=host,
            device=device_name(captured.traced) if captured.traced is not None else "cpu",
            step_ms=step_ms,
            spread=timed.spread if timed is not None else None,
            steps=timed.steps if timed is not None else 0,
            breakdown_ms=view.breakdown() if view is not None else None,
            cpu_ms=core[0] * step_ms if core and step_ms else None,
            delayed_ms=core[1] * step_ms if core and step_ms else None,
            peak_bytes=captured.peak_bytes,
            program=program,
        ),
        lines=line_rows(captured, step_ms, shown_path(folder))[:_MOST_LINES] if step_ms else [],
        communication_ms=view.communication_ms() if view is not None else [],
        by_time=captured.by_time,
        began_ns=captured.began_ns,
        missing=captured.missing,
    )


def side_by_side(rank: Rank, own: RankSeen, others: Sequence[Awaited], folder: str) -> RanksSeen:
    """The first rank's view of all of them, with what is missing.

    Args:
        rank: the first.
        own: what it saw itself.
        others: what the others left.
        folder: the working directory, which they share.
    """
    seen, trust = [own], _absent(rank, [one.rank for one in others if not one.came])
    for one in others:
        if one.came:
            found, limits = _read(one, folder)
            seen.append(found)
            trust += limits
    trust += [*_missing(own, seen[1:]), *_apart(seen)]
    waiting = _waiting(seen)
    times = [
        one.times.model_copy(update={"waiting_ms": median(waiting[one.times.rank])})
        if one.times.rank in waiting
        else one.times
        for one in sorted(seen, key=lambda one: one.times.rank)
    ]
    ranks = RanksSeen(times, {one.times.rank: one.lines for one in seen}, waiting, trust)
    behind = lag(ranks)
    if behind is not None and behind.by_itself < LEAST_BY_ITSELF:
        trust.append(
            Trust(
                what=f"{ranks_named(behind.late)} came last",
                effect="most of that is time in which other programs had its core, and not its own work",
                remedy="run it on a quiet machine, with a core for each rank",
            )
        )
    elif behind is not None and rank.number not in behind.late:
        trust.append(
            Trust(
                what=f"rank {rank.number} waits for {ranks_named(behind.late)}",
                effect=f"what is gained on rank {rank.number} alone makes no step shorter as long as it does",
            )
        )
    return ranks


def at_work_ms(times: RankTimes) -> float | None:
    """A rank's step without what it spends in collectives alone: what it does by itself."""
    if times.step_ms is None or times.breakdown_ms is None:
        return None
    return times.step_ms - times.breakdown_ms.communication


@dataclass(frozen=True)
class Lag:
    """Ranks that others wait for; milliseconds of a step."""

    late: list[int]
    in_steps: int
    """In so many of the traced steps one of them came last."""
    of_steps: int
    step_ms: float
    waiting_ms: float
    """The median of the others'."""
    late_work_ms: float
    """What the latest does by itself."""
    others_work_ms: float
    """The median of the others'."""
    mean_waiting_ms: float
    """Of all ranks: what an even split of the work would save."""
    by_itself: float
    """How much of that is the late ranks' own work, 0 to 1; the rest is that others had their cores."""


def lag(ranks: RanksSeen) -> Lag | None:
    """Whether one rank, or a few, make the others wait: those wait least in collectives themselves.

    Ranks that are late by turns are not: that is what a busy machine looks like.
    """
    work = {one.rank: own for one in ranks.times if (own := at_work_ms(one)) is not None}
    waits = {rank: waited for rank, waited in ranks.waiting_ms.items() if rank in work}
    steps = [one.step_ms for one in ranks.times if one.rank in waits and one.step_ms]
    if len(waits) < 2 or not steps:
        return None
    usually = {rank: median(waited) for rank, waited in waits.items()}
    least = min(usually, key=lambda rank: usually[rank])
    waiting = median(ms for rank, ms in usually.items() if rank != least)
    if waiting < _WAITING * median(steps):
        return None
    late = sorted(rank for rank, ms in usually.items() if ms < _HARDLY * waiting)
    count = len(waits[least])
    last = sum(any(waits[rank][step] <= 0 for rank in late) for step in range(count))
    if last < _MOST_STEPS * count:
        return None
    return Lag(
        late=late,
        in_steps=last,
        of_steps=count,
        step_ms=median(steps),
        waiting_ms=waiting,
        late_work_ms=max(work[rank] for rank in late),
        others_work_ms=median(own for rank, own in work.items() if rank in waits and rank not in late),
        mean_waiting_ms=mean(usually.values()),
        by_itself=_by_itself([one for one in ranks.times if one.rank in waits], late, waiting),
    )


def _by_itself(times: Sequence[RankTimes], late: Sequence[int], waiting_ms: float) -> float:
    """How much of what others wait is the late ranks' own doing.

    All of it, if they compute that much more: on a busy machine that takes longer still. Else what their work
    is longer, without the time in which others had their cores.
    """
    groups = [[one for one in times if (one.rank in late) == wanted] for wanted in (True, False)]
    cpu_late, cpu_others = (median(one.cpu_ms or 0.0 for one in group) for group in groups)
    if cpu_late - cpu_others >= _MORE_WORK * cpu_late > 0:
        return 1.0
    own_late, own_others = (
        median((at_work_ms(one) or 0.0) - (one.delayed_ms or 0.0) for one in group) for group in groups
    )
    return min(1.0, max(0.0, (own_late - own_others) / waiting_ms))


def _waiting(seen: Sequence[RankSeen]) -> dict[int, list[float]]:
    """What each rank waited for others, beyond what the one spends that comes last."""
    spent = {one.times.rank: one.communication_ms for one in seen if one.communication_ms}
    if len(spent) < 2:
        return {}
    if any(one.by_time for one in seen):
        # Not the same steps.
        spent = {rank: [mean(steps)] for rank, steps in spent.items()}
    # All begin at the same step; a window that ended early on one rank is short there.
    least = [min(step) for step in zip(*spent.values(), strict=False)]
    return {
        rank: [one - other for one, other in zip(steps, least, strict=False)] for rank, steps in spent.items()
    }


def _read(one: Awaited, folder: str) -> tuple[RankSeen, list[Trust]]:
    """A rank's part; where it left none, what its capture had written."""
    name = f"rank {one.rank}"
    if one.part is not None:
        try:
            seen = RankSeen.model_validate(one.part)
        except ValidationError as error:
            effect = f"what it left cannot be read: {error.error_count()} fields are wrong"
            return _nothing(one), [Trust(what=name, effect=effect)]
        return seen, _of_its_end(seen)
    captured = read_capture(one.capture) if one.capture is not None else Captured()
    seen = rank_seen(captured, one.rank, one.host, None, folder)
    how = "it was still running when the first rank's patience ended" if one.alive else "it was killed"
    effect = "what its capture had written is used" if captured.written else "nothing is known of it"
    return seen, [Trust(what=name, effect=f"{how}: {effect}")]


def _nothing(one: Awaited) -> RankSeen:
    return rank_seen(Captured(), one.rank, one.host, None, "")


def _of_its_end(seen: RankSeen) -> list[Trust]:
    name, end = f"rank {seen.times.rank}", seen.times.program
    if end is not None and (end.signal is not None or end.exit_code):
        return [Trust(what=name, effect=f"its program {ending(end)}; this is what was seen until then")]
    if seen.times.step_ms is None and not seen.missing:
        return [Trust(what=name, effect="no step of it was seen", remedy="let it run longer")]
    return []


def _absent(rank: Rank, missing: Sequence[int]) -> list[Trust]:
    """Ranks that never registered: on other machines, or not there at all."""
    if not missing:
        return []
    which, they = ranks_named(missing), "it" if len(missing) == 1 else "they"
    if rank.local_world == rank.world:
        return [Trust(what=which, effect=f"{they} never came: nothing is known")]
    effect = (
        f"{they} left nothing in this folder; {rank.local_world} of {rank.world} ranks run on this machine, "
        "and this report is about those that left something"
    )
    remedy = "set TRACKSIDE_HOME to a folder that all machines share"
    return [Trust(what=which, effect=effect, remedy=remedy)]


def _missing(own: RankSeen, others: Sequence[RankSeen]) -> list[Trust]:
    """What captures of other ranks lack that the first one's does not, each once."""
    ranks: dict[tuple[str, str, str | None], list[int]] = {}
    known = {(one.what, one.effect) for one in own.missing}
    for other in others:
        for one in other.missing:
            if (one.what, one.effect) not in known:
                ranks.setdefault((one.what, one.effect, one.remedy), []).append(other.times.rank)
    return [
        Trust(what=f"{what} of {ranks_named(which)}", effect=effect, remedy=remedy)
        for (what, effect, remedy), which in ranks.items()
    ]


def _apart(seen: Sequence[RankSeen]) -> list[Trust]:
    """How far windows by the clock lay from each other; of other machines that cannot be told."""
    by_time = [one for one in seen if one.by_time and one.began_ns]
    if not by_time:
        return []
    if len(by_time) < len([one for one in seen if one.began_ns]):
        some = ranks_named([one.times.rank for one in by_time])
        effect = f"the windows of {some} went by the clock and the others' by steps: they lay elsewhere"
        return [Trust(what="windows of the ranks", effect=effect, remedy=None)]
    host = by_time[0].times.host
    here = [one for one in by_time if one.times.host == host]
    apart = [
        (max(times) - min(times)) / 1e6
        for name in ("A", "T", "B")
        if len(times := [one.began_ns[name] for one in here if name in one.began_ns]) > 1
    ]
    if not apart or max(apart) < _AT_ONCE_MS:
        return []
    longest = duration(1e6 * max(apart))
    effect = "for so long a rank may have waited for another's tracing to begin or to end"
    return [
        Trust(
            what=f"windows went by the clock, and began up to {longest} apart on the ranks",
            effect=effect,
            remedy="longer windows have less of it: --seconds 5",
        )
    ]
