"""A profile on one screen of a terminal: the sentence, the step, its lines, what ran, what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trackside.records.durations import duration
from trackside.records.errors import printable
from trackside.report.kernel_names import short_kernel
from trackside.report.sizes import told_bytes

__all__ = ["render"]

_PARTS = {
    "compute": ("green", "█"),
    "communication": ("magenta", "▓"),
    "copy": ("blue", "▒"),
    "host": ("yellow", "░"),
    "idle": ("red", "·"),
}
_WINDOWS = {"A": "untraced", "L": "with lines", "T": "traced", "B": "with both", "K": "keeping memory"}
_LINES, _KERNELS, _FINDINGS, _TRUST = 6, 5, 3, 3
# Of more ranks the slowest, the median and the fastest.
_RANKS = 4
# Less of the step than this is not worth a row on a screen.
_LEAST_SHARE = 0.005
_NARROW = 100
# Characters of a file and its line: of a finding, and elsewhere.
_WHERE, _PLACE = 30, 34
# And of what to do about the first finding.
_FIX = 150


def render(record: Mapping[str, Any], console: Console) -> None:
    """Print a profile record."""
    console.print()
    console.print(Padding(Text(printable(record["verdict"]), style="bold"), (0, 2)))
    if record["breakdown_ms"] and record["step_ms"]:
        _step(record, console)
    ranks = record.get("ranks", ())
    _ranks(ranks, console)
    # They take the place of other rows: all is one screen.
    less, fewer = (2, 3) if len(ranks) > 1 else (0, 0)
    _lines(record, console, _LINES - less)
    _kernels(record, console, _KERNELS - fewer)
    _memory(record.get("memory", ()), console)
    _findings(record, console)
    _trust(record["trust"], console)


def _step(record: Mapping[str, Any], console: Console) -> None:
    step, parts = record["step_ms"], record["breakdown_ms"]
    width = max(20, min(console.width, 110) - 6)
    bar = Text("\n  ")
    done = 0.0
    drawn = 0
    for name, (colour, sign) in _PARTS.items():
        done += parts[name]
        # By where it ends, so that rounding does not add up.
        upto = round(width * min(1.0, done / step))
        bar.append(sign * (upto - drawn), style=colour)
        drawn = upto
    console.print(bar)
    told = Text("  ")
    for name, (colour, sign) in _PARTS.items():
        if parts[name] > 0.0005 * step:
            told.append(f"{sign} ", style=colour).append(f"{name} {_share(parts[name] / step)}   ")
    console.print(told)
    told = Text(" · ".join(_window(row) for row in record["windows"]), style="dim")
    console.print(Padding(told.append(f" · steps by {record['steps_found_by']}"), (0, 2)))


def _window(row: Mapping[str, Any]) -> str:
    how = f"{row['slowdown']:.2f}×" if row["slowdown"] else f"{_ms(row['step_ms'])} ± {row['spread'] / 2:.0%}"
    return f"{row['steps']} {_WINDOWS[row['window']]} {how}"


def _ranks(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    if len(rows) < 2:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("rank", no_wrap=True)
    for name in ("step", "at work", "waiting for others", "peak memory"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("ended", no_wrap=True, max_width=16, overflow="ellipsis")
    for row, told in _few_ranks(rows):
        step, work, waiting = row["step_ms"], _at_work(row), row["waiting_ms"]
        table.add_row(
            Text(f"{row['rank']}{told}"),
            *(Text(_ms(ms) if ms is not None else "–") for ms in (step, work)),
            Text(f"{_ms(waiting)} {_share(waiting / step)}" if waiting is not None and step else "–"),
            Text(told_bytes(row["peak_bytes"]) if row["peak_bytes"] is not None else "–"),
            Text(printable(_how_it_ended(row["program"]))),
        )
    console.print(Padding(table, (1, 2, 0, 2)))
    if len(rows) > _RANKS:
        left = f"{len(rows)} ranks in all, by their time at work"
        console.print(Padding(Text(left, style="dim"), (0, 2)))


def _few_ranks(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
    known = sorted((row for row in rows if _at_work(row) is not None), key=lambda row: -(_at_work(row) or 0))
    if len(rows) <= _RANKS or len(known) < 3:
        return [(row, "") for row in rows[:_RANKS]]
    return [(known[0], " slowest"), (known[len(known) // 2], " median"), (known[-1], " fastest")]


def _at_work(row: Mapping[str, Any]) -> float | None:
    """A rank's step without what it spends in collectives alone."""
    if row["step_ms"] is None or row["breakdown_ms"] is None:
        return None
    return float(row["step_ms"] - row["breakdown_ms"]["communication"])


def _how_it_ended(program: Mapping[str, Any] | None) -> str:
    if program is None:
        return "not known"
    return str(program["signal"] or f"exit code {program['exit_code']}")


def _lines(record: Mapping[str, Any], console: Console, most: int) -> None:
    rows = [row for row in record["lines"] if row["share"] >= _LEAST_SHARE][:most]
    if not rows:
        return
    on_device = record["device"] != "cpu"
    forward = "device_ms" if on_device else "cpu_ms"
    backward = any(row["backward_ms"] for row in rows)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    table.add_column("line", no_wrap=True, max_width=_PLACE, overflow="ellipsis")
    table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("forward" if backward else "time", justify="right", no_wrap=True)
    if backward:
        table.add_column("backward", justify="right", no_wrap=True)
    if on_device:
        table.add_column("host", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for row in rows:
        cells = [Text(_place(row["file"], row["line"])), Text(printable(row["text"].strip()), style="dim")]
        cells.append(Text(_ms(row[forward])))
        cells += [Text(_ms(row["backward_ms"]) if row["backward_ms"] else "")] if backward else []
        cells += [Text(_ms(row["cpu_ms"]))] if on_device else []
        table.add_row(*cells, Text(_share(row["share"])))
    console.print(Padding(table, (1, 2, 0, 2)))
    buckets = [f"{row['name']} {_share(row['share'])}" for row in record["buckets"] if row["share"] >= 0.001]
    left = len([row for row in record["lines"] if row["share"] >= _LEAST_SHARE]) - len(rows)
    more = [f"{left} more {'line' if left == 1 else 'lines'}"] if left > 0 else []
    if buckets or more:
        beside = "no line of yours: " + ", ".join(buckets) if buckets else ""
        console.print(Padding(Text("; ".join([*([beside] if beside else []), *more]), style="dim"), (0, 2)))


def _kernels(record: Mapping[str, Any], console: Console, most: int) -> None:
    rows = [row for row in record["kernels"] if row["share"] >= _LEAST_SHARE][:most]
    if not rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    table.add_column(
        "kernel" if record["device"] != "cpu" else "operator", ratio=1, no_wrap=True, overflow="ellipsis"
    )
    wide = console.width >= _NARROW
    if wide:
        table.add_column("called in", no_wrap=True, max_width=_PLACE, overflow="ellipsis")
    placed = any(row["roof_share"] is not None for row in rows)
    for name in ("runs", "time", "share", *(["of its limit"] if placed else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        where = Text(printable(_short_place(row["lines"][0])) if row["lines"] else "", style="dim")
        table.add_row(
            Text(printable(short_kernel(row["name"]))),
            *([where] if wide else []),
            f"{row['calls']:.3g}",
            _ms(row["total_ms"]),
            _share(row["share"]),
            *([_limit(row)] if placed else []),
        )
    console.print(Padding(table, (1, 2, 0, 2)))


def _memory(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """A line for each device; the process as a whole stands beside the first of the host's."""
    process = next((row for row in rows if row["device"] == "process"), None)
    devices = [row for row in rows if row is not process]
    for row in devices:
        told = [f"memory of {printable(row['device'])}: peak {told_bytes(row['peak_bytes'])}"]
        if row["device"] == "cpu":
            told[0] = f"memory: tensors take up to {told_bytes(row['peak_bytes'])}"
            if process is not None:
                told.append(f"the process {told_bytes(process['peak_bytes'])}{_of_total(process)}")
        else:
            told[0] += _of_total(row)
            if row["reserved_bytes"]:
                told.append(f"{told_bytes(row['reserved_bytes'])} reserved")
        if most := _most_held(row):
            told.append(most)
        if row["growth_bytes"]:
            by = [_place(line["file"], line["line"]) for line in row["growth_lines"][:1]]
            told.append(" by ".join([f"{told_bytes(row['growth_bytes'])} more after every step", *by]))
        console.print(
            Padding(Text(" · ".join(told), style="dim"), (0 if row is not devices[0] else 1, 2, 0, 2))
        )


def _of_total(row: Mapping[str, Any]) -> str:
    total = row["total_bytes"]
    return f" ({_share(row['peak_bytes'] / total)} of {told_bytes(total)})" if total else ""


def _most_held(row: Mapping[str, Any]) -> str:
    """The line that holds most, unless something else holds more."""
    line = row["lines"][0] if row["lines"] else None
    other = row["held"][0] if row["held"] else None
    if line is not None and (other is None or line["bytes"] >= other["bytes"]):
        backward = ", backward" if 2 * line["backward_bytes"] > line["bytes"] else ""
        return f"most by {_place(line['file'], line['line'])} ({told_bytes(line['bytes'])}{backward})"
    beside = (
        f", then {_place(line['file'], line['line'])} ({told_bytes(line['bytes'])})"
        if line is not None
        else ""
    )
    return (
        f"most by {printable(other['what'])} ({told_bytes(other['bytes'])}){beside}"
        if other is not None
        else ""
    )


def _limit(row: Mapping[str, Any]) -> Text:
    """How near it comes to what was measured here."""
    if row["roof_share"] is None:
        return Text("–", style="dim")
    return Text(f"{row['bound']} {row['roof_share']:.0%}")


def _findings(record: Mapping[str, Any], console: Console) -> None:
    rows = record["findings"]
    if not rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    table.add_column("what to change", ratio=1)
    table.add_column("where", no_wrap=True, max_width=_WHERE, overflow="ellipsis")
    table.add_column("gain", justify="right", no_wrap=True)
    for row in rows[:_FINDINGS]:
        gain = row["gain"]
        table.add_row(
            Text(printable(row["title"])),
            Text(_place(row["file"], row["line"], _WHERE) if row["file"] else ""),
            f"{gain['low']:.0%}–{gain['high']:.0%}",
        )
    console.print(Padding(table, (1, 2, 0, 2)))
    sign = "→" if len(rows) == 1 else "first →"
    console.print(Padding(Text(printable(f"{sign} {_short_fix(rows[0]['fix'])}")), (0, 2)))
    together = record["together"]
    told = [f"{len(rows) - _FINDINGS} more"] if len(rows) > _FINDINGS else []
    told += [f"all {len(rows)} at once about {together['mid']:.0%}"] if together and len(rows) > 1 else []
    if told:
        console.print(Padding(Text("; ".join(told), style="dim"), (0, 2)))


def _short_fix(fix: str) -> str:
    """What to type for the first of them; two lines of a narrow terminal."""
    return fix if len(fix) <= _FIX else f"{fix[: _FIX - 1]}…"


def _trust(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    if not rows:
        return
    table = Table.grid(padding=(0, 1))
    for row in rows[:_TRUST]:
        text = Text(printable(f"{row['what']}: {row['effect']}"))
        if row["remedy"]:
            text.append(printable(f" → {row['remedy']}"), style="dim")
        table.add_row(Text("!", style="yellow"), text)
    console.print(Padding(table, (1, 2, 0, 2)))
    if len(rows) > _TRUST:
        left = len(rows) - _TRUST
        more = f"{left} more {'limit' if left == 1 else 'limits'} in the report"
        console.print(Padding(Text(more, style="dim"), (0, 2)))


def _place(file: str, line: int, most: int = _PLACE) -> str:
    return _short_place(printable(f"{file}:{line}"), most)


def _short_place(place: str, most: int = _PLACE) -> str:
    """Cut at the front, where folders are."""
    if len(place) <= most:
        return place
    name = PurePath(place).name
    return f"…/{name}" if len(name) + 2 <= most else f"…{place[-most + 1 :]}"


def _ms(ms: float) -> str:
    return duration(1e6 * ms)


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"
