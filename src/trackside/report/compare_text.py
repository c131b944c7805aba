"""A compare record on a terminal: the verdict in five seconds, then what it rests on."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trackside.records.durations import duration
from trackside.records.errors import printable
from trackside.report.sparkline import telemetry_rows

__all__ = ["explain", "render"]

_COLOURS = {
    "faster": "bold green",
    "equivalent": "bold cyan",
    "slower": "bold yellow",
    "inconclusive": "bold magenta",
    "rejected": "bold red",
    "not-comparable": "bold red",
}
_MARKS = {
    "pass": ("green", "✓"),
    "warn": ("yellow", "!"),
    "fail": ("red", "✗"),
    "unknown": ("magenta", "?"),
    "not_applicable": ("dim", "–"),
}
_STATUS_WORDS = {
    "pass": "passed",
    "warn": "warned",
    "fail": "failed",
    "unknown": "unknown",
    "not_applicable": "not applicable",
}
_WORTH_TELLING_S = 1.0
_MEANING = {
    "faster": "the candidate is faster and its outputs are right",
    "equivalent": "no difference beyond the threshold; outputs are right",
    "slower": "the candidate is slower; its outputs are right",
    "inconclusive": "not decided",
    "rejected": "the candidate does not do what the baseline does",
    "not-comparable": "the two did not run under the same conditions",
}


def render(record: dict[str, Any], console: Console) -> None:
    """Print a compare record. What comes from a candidate is shown as text and never steers the terminal."""
    record = _cleaned(record)
    _headline(record, console)
    _rows([("why", reason, "") for reason in record["reasons"]], console)
    if record["shapes"]:
        _shapes(record, console)
    _evidence(record, console)
    _checks(record, console)
    _closing(record, console)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list) else value


def _rows(rows: list[tuple[str, str, str]], console: Console) -> None:
    """Name and text in two columns, so that long text wraps under itself."""
    if not rows:
        return
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text, style in rows:
        table.add_row(Text(name, style=style or "bold"), Text(text))
    console.print(table)


def _headline(record: dict[str, Any], console: Console) -> None:
    verdict, speed = record["verdict"], record["speedup"]
    line = Text(" ")
    line.append(f" {verdict.upper()} ", style=_COLOURS[verdict] + " reverse")
    if speed is not None and verdict not in ("rejected", "not-comparable"):
        line.append(f"  {speed['ratio']:.3f}×", style="bold")
        line.append(f"  [{speed['low']:.3f}, {speed['high']:.3f}]")
        line.append(f"  {speed['metric']} time, {speed['confidence']:.0%}", style="dim")
    words = {"full": "certified", "reduced": "certified, with reservations", "none": "not certified"}
    worth = Text(words[record["certificate"]], style="green" if record["certificate"] == "full" else "yellow")
    narrow = line.cell_len + worth.cell_len + 3 > console.width
    line.append("\n  " if narrow else "   ").append_text(worth)
    console.print()
    console.print(line)
    meaning = _MEANING[verdict]
    outputs = next((c for c in record["checks"] if c["id"] == "output-matches-oracle"), None)
    if speed is not None and outputs is not None and outputs["status"] == "unknown":
        # Two commands without any output to compare: all that is known is the time.
        meaning = "the times alone say so: there was no output to compare"
    console.print(Text(f"  {meaning}", style="dim"))


def _shapes(record: dict[str, Any], console: Console) -> None:
    table = Table(box=None, padding=(0, 2))
    for column in ("shape", "verdict", "speedup", "interval", "why"):
        table.add_column(column)
    for row in record["shapes"]:
        speed = row["speedup"]
        table.add_row(
            str(row["shape"]),
            Text(row["verdict"], style=_COLOURS[row["verdict"]]),
            f"{speed['ratio']:.3f}×" if speed else "",
            f"[{speed['low']:.3f}, {speed['high']:.3f}]" if speed else "",
            Text(row["reasons"][0][:80] if row["reasons"] else ""),
        )
    console.print(table)


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _error(rms: float | None) -> str:
    return "infinite" if rms is None else f"{rms:.1e}"


def _evidence(record: dict[str, Any], console: Console) -> None:
    rows = [
        *_time_rows(record),
        *_statistics_rows(record),
        *_accuracy_rows(record),
        *_file_rows(record["accuracy"]),
        *_resource_rows(record),
    ]
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, Text(value))
    if rows:
        console.print(table)


def _time_rows(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    base, cand = record["timings"].get("baseline", {}), record["timings"].get("candidate", {})
    names = {
        "device": "cold cache, device" if record["environment"].get("device", "cpu") != "cpu" else "time",
        "hot": "hot, launch included",
        "wall": "wall time of a run" if _compares_commands(record) else "wall, with sync",
        "cpu": "CPU time of a run",
    }
    for series, name in names.items():
        first, second = base.get(series), cand.get(series)
        if first is None or second is None or (series == "wall" and first == base.get("device")):
            continue
        yield (
            name,
            f"{_us(first['p50_us'])} → {_us(second['p50_us'])}   p99 {_us(first['p99_us'])} → "
            f"{_us(second['p99_us'])}   n {first['n']}, {second['n']}",
        )


def _statistics_rows(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    speed, statistics = record["speedup"], record["statistics"]
    commands = _compares_commands(record)
    if speed is not None and speed["bounded"] is not None and not commands:
        yield (
            "judge's clock",
            f"at least {speed['bounded_low']:.2f}× ({speed['bounded']:.2f}× in the middle), by a clock "
            f"that no candidate can reach; a liar could hide {_us(speed['lie_us'])} a call",
        )
    # Of a run that timed nothing, how quiet the machine was decides nothing.
    if not statistics:
        return
    yield (
        "statistics",
        f"{statistics['pairs']} {'blocks' if commands else 'worker pairs'}, "
        f"{statistics['quads_kept']} of {statistics['quads']} quads kept, "
        f"{'a run' if commands else _calls(statistics['calls_per_slot'])} a slot, "
        f"threshold ±{statistics['delta']:.1%}"
        + ("; host-bound: launches could not be hidden" if statistics.get("host_bound") else ""),
    )
    yield from telemetry_rows(record.get("telemetry") or {})


def _accuracy_rows(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    accuracy, statistics = record["accuracy"], record["statistics"]
    outputs = [o for o in accuracy.get("outputs", []) if o["candidate"]]
    # The good calls before a bad one are no evidence of anything.
    if not outputs or record["verdict"] == "rejected":
        return
    # A record holds no infinity: where an error is one, there is null.
    worst = max(outputs, key=lambda o: math.inf if (e := o["candidate"]["rms"]) is None else e)
    yield (
        "accuracy",
        f"{worst['path']}: rms {_error(worst['candidate']['rms'])}, baseline "
        f"{_error(worst['baseline']['rms'])}, against {accuracy['oracle']}",
    )
    screened = ""
    if statistics and "screened_calls" in accuracy:
        screened = (
            f", {accuracy['screened_calls']} of {statistics['candidate_calls']} timed ones compared with the "
            "baseline's"
        )
    probes = [name for name, outcome in accuracy["probes"].items() if outcome == "passed"]
    checked = _calls(accuracy["checked_calls"])
    yield "", f"{checked} checked{screened}; probes passed: {', '.join(probes) or 'none'}"


def _file_rows(accuracy: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for output in accuracy.get("files", []):
        if output["bytes"]:
            close = output["largest_relative_difference"]
            same = "the same bytes" if output["identical"] else f"numbers within {close:.1e}"
            yield "output", f"{output['path']}: {accuracy['checked_calls']} runs compared, {same}"


def _resource_rows(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the physics allows, memory, and what building costs."""
    floor, memory, timings = record["floor"], record["memory"], record["timings"]
    if floor and floor.get("candidate_over_floor"):
        yield (
            "physical floor",
            f"{floor['candidate_over_floor']:.1f} times the least possible: "
            f"{duration(1e9 * floor['seconds'])} for {_floor_reason(floor)}",
        )
    if memory:
        kind = "device" if memory["baseline"]["device"] else "host"
        before, after = memory["baseline"][kind], memory["candidate"][kind]
        if before and after:
            yield f"peak {kind} memory", f"{before / 2**20:.0f} MiB → {after / 2**20:.0f} MiB"
    if timings.get("break_even_calls"):
        before, after = timings["baseline"]["build_s"], timings["candidate"]["build_s"]
        if after - before > _WORTH_TELLING_S:
            yield (
                "build",
                f"{duration(1e9 * before)} → {duration(1e9 * after)}; pays back after "
                f"{timings['break_even_calls']:,} calls",
            )


def _checks(record: dict[str, Any], console: Console) -> None:
    checks = record["checks"]
    if not checks:
        return
    late = [c for c in checks if c["status"] == "unknown" and c["detail"].startswith("not reached")]
    line = Text("  checks  ", style="bold")
    for status, (colour, mark) in _MARKS.items():
        found = [c for c in checks if c["status"] == status and c not in late]
        if found:
            line.append(f"{mark} {len(found)} {_STATUS_WORDS[status]}   ", style=colour)
    if late:
        line.append(f"… {len(late)} not reached", style="dim")
    console.print(line)
    told = set(record["reasons"])
    shown = [
        c
        for status in ("fail", "warn", "unknown")
        for c in checks
        if c["status"] == status and c not in late and f"{c['id']}: {c['detail']}" not in told
    ]
    _rows(
        [(f"  {_MARKS[c['status']][1]} {c['id']}", c["detail"], _MARKS[c["status"]][0]) for c in shown],
        console,
    )


def _closing(record: dict[str, Any], console: Console) -> None:
    run_id, verdict = record["run_id"], record["verdict"]
    failed = next((c["id"] for c in record["checks"] if c["status"] == "fail"), None)
    again = f"trackside runs show {run_id}"
    if verdict == "faster" and record["certified"]:
        again = f"trackside verify {run_id}"
    elif failed is not None:
        again = f"trackside compare --explain {failed}"
    elif verdict == "inconclusive" and record["baseline"] is not None and record["options"].get("quick"):
        # The same command without --quick: twice of too little is still too little.
        again = _again(record)
    elif verdict == "inconclusive" and record["baseline"] is not None:
        longer = (record["statistics"] or {}).get("longer") or 2
        again = f"{_again(record)} --budget {longer * record['options'].get('budget', 60):.0f}"
    # Not wrapped: an id or a command that is broken over two lines cannot be copied.
    console.print(Text.assemble(("  run  ", "bold"), f"{run_id}, {record['seconds']:.0f} s"), soft_wrap=True)
    console.print(Text.assemble(("  next: ", "bold"), again), soft_wrap=True)
    console.print()


def _compares_commands(record: dict[str, Any]) -> bool:
    return record["baseline"] is not None and record["baseline"]["format"] == "command"


# Options that make it another comparison, with their defaults.
_REPEATED = {
    "device": "cpu",
    "metric": "device",
    "claim": "faster",
    "delta": None,
    "threads": None,
    "pairs": None,
}


def _again(record: dict[str, Any]) -> str:
    """The command line that would repeat this run, ready to paste."""
    words = ["trackside", "compare"]
    if _compares_commands(record):
        words += ["--command", *(w for name in record["options"]["outputs"] for w in ("--output", name))]
    for name, default in _REPEATED.items():
        asked = record["options"].get(name, default)
        if asked != default:
            words += [f"--{name}", str(asked)]
    return shlex.join([*words, record["baseline"]["path"], record["candidate"]["path"]])


def explain(check: Any, result: dict[str, Any] | None, console: Console) -> None:
    """Say what one check looks for, what it catches, and what it saw in a run."""
    console.print(Text.assemble((check.id, "bold")))
    console.print(Text(f"  looks for  {check.looks_for}"))
    console.print(Text(f"  catches    {check.catches}"))
    console.print(Text(f"  a failure  makes the verdict `{check.on_fail}`"))
    if result is not None:
        colour, mark = _MARKS[result["status"]]
        console.print(
            Text.assemble(("  saw        ", ""), (f"{mark} {result['status']}: ", colour), result["detail"])
        )
        for name, value in result.get("evidence", {}).items():
            console.print(Text(f"             {name}: {value}"))


def _us(microseconds: float) -> str:
    return duration(1e3 * microseconds)


def _floor_reason(floor: dict[str, Any]) -> str:
    if floor.get("bound") == "arithmetic":
        return (
            f"{floor['flops'] / 1e9:,.3g} GFLOP at {floor['flops_per_s'] / 1e12:,.3g} TFLOP/s "
            f"({floor['flops_in']})"
        )
    where = " (from cache)" if str(floor.get("ceiling", "")).startswith("cache") else ""
    return f"{floor['bytes'] / 1e6:.1f} MB at {floor['bytes_per_s'] / 1e9:.0f} GB/s{where}"
