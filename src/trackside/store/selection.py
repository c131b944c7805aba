"""Which runs are meant: by an id or its beginning, by what came out of them, or by when they were."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from trackside.records.errors import TracksideError
from trackside.store.entry import Entry, RunState

__all__ = ["RunFilter", "age_ns", "moment_ns", "nearest_ids", "run_with_id", "size_bytes"]

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE: Final = re.compile(r"(\d{1,6})([smhdw])")
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?(?:([kMGT])(i?)B?|B)?", re.IGNORECASE)

# Of the letters of both ids; a typing error or two leave more than this, two ids of one week by chance less.
_ALIKE: Final = 0.75
_NEAREST: Final = 3


@dataclass(frozen=True)
class RunFilter:
    """What a run must be to be listed; None is anything."""

    verb: str | None = None
    verdict: str | None = None
    state: RunState | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    about: str | None = None
    """Part of what it was about, in capitals or not."""

    def fits(self, entry: Entry) -> bool:
        return (
            self.verb in (None, entry.verb)
            and self.verdict in (None, entry.verdict)
            and self.state in (None, entry.state)
            and (self.since_ns is None or entry.started_ns >= self.since_ns)
            and (self.until_ns is None or entry.started_ns < self.until_ns)
            and (self.about is None or self.about.casefold() in (entry.about or "").casefold())
        )


def run_with_id(reference: str, ids: Collection[str], place: str) -> str:
    """The one id that is the reference or begins with it.

    Raises:
        TracksideError: kind `not-found`, with those that were perhaps meant, when none or several fit.
    """
    if reference in ids:
        return reference
    fitting = sorted(run_id for run_id in ids if reference and run_id.startswith(reference))
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        shown = ", ".join(fitting[:5]) + (f" and {len(fitting) - 5} more" if len(fitting) > 5 else "")
        message = f"{len(fitting)} runs start with {reference!r}: {shown}"
        raise TracksideError("not-found", message, "give more of the id")
    near = nearest_ids(reference, ids)
    # What looks like none of them was perhaps meant to be a word such as `last`.
    nearby = f"nearest: {', '.join(near)}" if near else f"the newest by its name: {_newest(ids)}"
    message = f"no run {reference!r} among the {len(ids)} in {place}; {nearby}"
    raise TracksideError("not-found", message, "see `trackside runs list`")


def _newest(ids: Collection[str]) -> str:
    return max(ids, key=lambda run_id: run_id.partition("-")[2])


def nearest_ids(reference: str, ids: Collection[str]) -> list[str]:
    """Ids that were perhaps meant: those that contain the reference, else those that look like it."""
    if len(reference) >= 3:
        holding = sorted((run_id for run_id in ids if reference in run_id), reverse=True)
        if holding:
            return holding[:_NEAREST]
    # Here: a list that is right needs neither, and has a fifth of a second in all.
    import difflib
    import heapq

    matcher = difflib.SequenceMatcher(None, "", reference, autojunk=False)
    scored = []
    for run_id in ids:
        # Only as much of it as was given: a beginning with an error in it is short.
        matcher.set_seq1(run_id[: max(len(reference), 4)])
        if matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE:
            scored.append((matcher.ratio(), run_id))
    return [run_id for ratio, run_id in heapq.nlargest(_NEAREST, scored) if ratio >= _ALIKE]


def age_ns(text: str) -> int:
    """`30m`, `12h`, `7d` or `2w` in nanoseconds.

    Raises:
        TracksideError: kind `usage`.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise TracksideError(
            "usage",
            f"found {text!r}; needed: an age, a number with one of s, m, h, d, w",
            "for example `7d` for seven days",
        )
    return int(match[1]) * _SECONDS[match[2]] * 1_000_000_000


def moment_ns(text: str, now_ns: int, *, end: bool = False) -> int:
    """A point in time, in nanoseconds since the epoch: so long ago (`7d`), or a date or time in UTC.

    Args:
        text: what the user gave.
        now_ns: what an age counts from.
        end: a day means its end, not its beginning.

    Raises:
        TracksideError: kind `usage`.
    """
    if _AGE.fullmatch(text.strip()):
        return now_ns - age_ns(text)
    try:
        found = datetime.fromisoformat(text.strip())
        if end and re.fullmatch(r"\d{4}-?\d{2}-?\d{2}", text.strip()):
            found += timedelta(days=1)
        moment = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1_000_000) * 1000
    except (ValueError, OverflowError) as error:
        raise TracksideError(
            "usage",
            f"found {text!r}; needed: an age such as `7d`, a date such as `2026-11-17`, or a time such as "
            "`2026-11-17T09:30` (UTC)",
            "runs are listed with their time in UTC",
        ) from error


def size_bytes(text: str) -> int:
    """`500MB`, `1.5 GiB` or plain bytes.

    Raises:
        TracksideError: kind `usage`.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise TracksideError(
            "usage",
            f"found {text!r}; needed: a size, in bytes or with one of kB, MB, GB, TB, KiB, MiB, GiB",
            "for example `2GB`",
        )
    power = "kmgt".index(match[2].lower()) + 1 if match[2] else 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)
