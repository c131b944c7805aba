"""Where the time went between two profiles: the same lines, modules and kernels in both, side by side."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TypeVar

from trackside.records.durations import duration
from trackside.records.profile import Breakdown, Bucket, Finding, Line, ModuleTime, ProfileRecord
from trackside.records.profile_diff import Change, LineChange, MemoryChange, ProfileDiff

__all__ = ["diff_profiles"]

_T = TypeVar("_T")
_BREAKDOWN = ("compute", "communication", "copy", "host", "idle")
# What the measuring window's own spread is not: steps vary from run to run by about this much as well.
_LEAST_SPREAD = 0.02
_MOST_COMMAND = 60
# Of the lines of two files under different names, so that they count as one file.
_ALIKE = 0.5


def diff_profiles(before: ProfileRecord, after: ProfileRecord) -> ProfileDiff:
    """The largest changes first."""
    host = "cpu" in (before.device, after.device)
    renamed = _renamed(before.sources, after.sources)
    found = ProfileDiff(
        schema="trackside.profile-diff/1",
        before=before.run_id or "",
        after=after.run_id or "",
        verdict="",
        step=_step(before, after),
        beyond_spread=_beyond(before, after),
        doubts=_doubts(before, after),
        breakdown=_breakdown(before, after),
        lines=_lines(before, after, renamed, host),
        buckets=_sums(before.buckets, after.buckets, lambda b: b.name, lambda b: _time(b, host)),
        modules=_sums(before.modules, after.modules, lambda m: m.path, lambda m: _time(m, host)),
        kernels=_sums(before.kernels, after.kernels, lambda k: k.name, lambda k: k.total_ms),
        memory=_memory(before, after),
        fixed=_only(before.findings, after.findings, renamed),
        new=_only(after.findings, before.findings, renamed),
    )
    return found.model_copy(update={"verdict": _verdict(found)})


def _change(name: str, before: float | None, after: float | None) -> Change:
    return Change(name=name, before_ms=before, after_ms=after, delta_ms=(after or 0.0) - (before or 0.0))


def _step(before: ProfileRecord, after: ProfileRecord) -> Change | None:
    if before.step_ms is None or after.step_ms is None:
        return None
    return _change("step", before.step_ms, after.step_ms)


def _beyond(before: ProfileRecord, after: ProfileRecord) -> bool | None:
    if before.step_ms is None or after.step_ms is None:
        return None
    spread = max(_LEAST_SPREAD, before.step_spread or 0.0, after.step_spread or 0.0)
    return abs(after.step_ms - before.step_ms) > spread * min(before.step_ms, after.step_ms)


def _doubts(before: ProfileRecord, after: ProfileRecord) -> list[str]:
    found = []
    if before.device != after.device:
        found.append(f"they ran on different devices: {before.device} and {after.device}")
    else:
        prints = [one.environment.get("fingerprint") for one in (before, after)]
        if None not in prints and prints[0] != prints[1]:
            found.append("they ran on different machines, or on one that has changed since")
    if before.command != after.command:
        ran = [shlex.join(one.command) or "a part of a program" for one in (before, after)]
        found.append(f"they are not runs of one command: {_cut(ran[0])}, then {_cut(ran[1])}")
    for label, one in (("earlier", before), ("later", after)):
        if one.program.exit_code != 0:
            found.append(f"the program of the {label} profile did not end well: {_end(one)}")
        if one.step_ms is None:
            found.append(f"the {label} profile has no step times")
    if before.steps_found_by != after.steps_found_by:
        found.append(
            f"a step may not be the same thing in both: found by {before.steps_found_by}, "
            f"then by {after.steps_found_by}"
        )
    return found


def _cut(command: str) -> str:
    return command if len(command) <= _MOST_COMMAND else f"{command[: _MOST_COMMAND - 1]}…"


def _end(record: ProfileRecord) -> str:
    if record.program.signal is not None:
        return f"signal {record.program.signal}"
    code = record.program.exit_code
    return "it was still running" if code is None else f"exit code {code}"


def _breakdown(before: ProfileRecord, after: ProfileRecord) -> list[Change]:
    if before.breakdown_ms is None or after.breakdown_ms is None:
        return []
    first, second = before.breakdown_ms, after.breakdown_ms
    return [_change(name, _part(first, name), _part(second, name)) for name in _BREAKDOWN]


def _part(breakdown: Breakdown, name: str) -> float:
    value: float = getattr(breakdown, "copy_" if name == "copy" else name)
    return value


def _time(one: Line | Bucket | ModuleTime, host: bool) -> float:
    """On the device, or, where there is none, on the host; with its derivatives."""
    backward = 0.0 if isinstance(one, Bucket) else one.backward_ms
    return (one.cpu_ms if host else one.device_ms) + backward


def _sums(
    before: Sequence[_T], after: Sequence[_T], name: Callable[[_T], str], time: Callable[[_T], float]
) -> list[Change]:
    """Changes by name, the largest first; several of one name are summed."""
    sums: dict[str, list[float | None]] = {}
    for place, parts in enumerate((before, after)):
        for part in parts:
            entry = sums.setdefault(name(part), [None, None])
            entry[place] = (entry[place] or 0.0) + time(part)
    return _largest(_change(key, first, second) for key, (first, second) in sums.items())


def _memory(before: ProfileRecord, after: ProfileRecord) -> list[MemoryChange]:
    peaks = [{one.device: one.peak_bytes for one in record.memory} for record in (before, after)]
    found = []
    for device in {**peaks[0], **peaks[1]}:
        first, second = (one.get(device) for one in peaks)
        delta = second - first if first is not None and second is not None else None
        found.append(MemoryChange(device=device, before_bytes=first, after_bytes=second, delta_bytes=delta))
    return found


_C = TypeVar("_C", bound=Change)


def _largest(changes: Iterable[_C]) -> list[_C]:
    return sorted((one for one in changes if one.delta_ms), key=lambda one: -abs(one.delta_ms))


# -- lines -------------------------------------------------------------------------------------------


def _renamed(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> dict[str, str]:
    """Later names by earlier ones, of files that say mostly the same: a change is often tried in a copy."""
    gone, come = (
        [file for file in one if file not in other] for one, other in ((before, after), (after, before))
    )
    alike = {
        (first, second): SequenceMatcher(None, before[first], after[second], autojunk=False).ratio()
        for first in gone
        for second in come
    }
    found: dict[str, str] = {}
    for first, second in sorted(alike, key=lambda pair: -alike[pair]):
        if alike[first, second] >= _ALIKE and first not in found and second not in found.values():
            found[first] = second
    return found


def _lines(
    before: ProfileRecord, after: ProfileRecord, renamed: Mapping[str, str], host: bool
) -> list[LineChange]:
    """By what the line says and where it stands: a line that moved is the same line."""
    moved = {
        file: _moves(source, after.sources[renamed.get(file, file)])
        for file, source in before.sources.items()
        if renamed.get(file, file) in after.sources
    }
    later = {(line.file, line.line): line for line in after.lines}
    found = []
    for line in before.lines:
        number = moved.get(line.file, {}).get(line.line, line.line if line.file not in moved else None)
        match = later.pop((renamed.get(line.file, line.file), number), None) if number is not None else None
        found.append(_line_change(line, match, host))
    found += [_line_change(None, line, host) for line in later.values()]
    return _largest(found)


def _moves(before: list[str], after: list[str]) -> dict[int, int]:
    """Numbers of lines, from 1, before and after; lines rewritten in place count if they are as many."""
    found: dict[int, int] = {}
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, first, first_end, second, second_end in matcher.get_opcodes():
        if tag == "equal" or (tag == "replace" and first_end - first == second_end - second):
            found.update((first + n + 1, second + n + 1) for n in range(first_end - first))
    return found


def _line_change(first: Line | None, second: Line | None, host: bool) -> LineChange:
    shown = second or first
    assert shown is not None
    old = _time(first, host) if first else None
    new = _time(second, host) if second else None
    return LineChange(
        name=f"{shown.file}:{shown.line}",
        before_ms=old,
        after_ms=new,
        delta_ms=(new or 0.0) - (old or 0.0),
        before_line=first.line if first else None,
        after_line=second.line if second else None,
        text=shown.text,
    )


# -- what is said ------------------------------------------------------------------------------------


def _only(these: Sequence[Finding], those: Sequence[Finding], renamed: Mapping[str, str]) -> list[Finding]:
    """Findings of rules at places where the others have none; a line may have moved, a file been copied."""
    left = [_place(one, renamed) for one in those]
    found = []
    for one in these:
        if (place := _place(one, renamed)) in left:
            left.remove(place)
        else:
            found.append(one)
    return found


def _place(one: Finding, renamed: Mapping[str, str]) -> tuple[str, str | None]:
    return one.id, renamed.get(one.file, one.file) if one.file is not None else None


def _verdict(found: ProfileDiff) -> str:
    if found.step is None or not found.step.before_ms:
        return "Steps cannot be compared: one of the profiles has no step times."
    share = found.step.delta_ms / found.step.before_ms
    lengths = [duration(1e6 * ms) for ms in (found.step.before_ms, found.step.after_ms or 0.0)]
    times = f"{' → '.join(lengths)} a step"
    if not found.beyond_spread:
        return f"No difference beyond what steps vary by: {times} ({share:+.1%})."
    word = "faster" if share < 0 else "slower"
    said = f"{times}: {abs(share):.1%} {word}"
    same_way: list[Change] = [
        *(one for one in found.lines if (one.delta_ms < 0) == (share < 0)),
        *(one for one in found.buckets if (one.delta_ms < 0) == (share < 0)),
    ]
    if same_way:
        most = max(same_way, key=lambda one: abs(one.delta_ms))
        part = "most of it" if 2 * abs(most.delta_ms) > abs(found.step.delta_ms) else "the largest part"
        said += f", {part} at {most.name} ({duration(1e6 * most.delta_ms, signed=True)})"
    return f"{said}."
