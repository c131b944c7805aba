"""A selfcheck record on a terminal: what compare got wrong, how often, and how sure that is."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["render", "run_line"]

_WHATS = {
    ("aa", "false"): "identical code called faster or slower",
    ("aa", "refused"): "identical code refused",
    ("injected", "found"): "known slowdown found",
    ("injected", "wrong"): "known slowdown called none",
    ("injected", "refused"): "slower code refused",
    ("swap", "reciprocal"): "files swapped, ratio inverted",
}
_NAMES = {"aa": "A/A", "injected": "injected", "swap": "swap", "linearity": "linearity"}
_VERDICTS = ("faster", "slower", "equivalent", "inconclusive", "rejected", "not-comparable", "error")


def render(record: dict[str, Any], console: Console) -> None:
    """Print a selfcheck record."""
    console.print()
    console.print(_headline(record))
    console.print(_rates(record["rates"]))
    for text in _verdicts(record["runs"]):
        console.print(text, markup=False)
    for line in record["linearity"]:
        console.print(_linearity(line))
    for name, width in record["half_width"].items():
        seconds = record["seconds_each"][name]
        console.print(f"  {name}: median half-width {width:.2%}, {seconds:.0f} s a comparison", markup=False)
    errors = [run for run in record["runs"] if run["error"]]
    for run in errors[:5]:
        console.print(
            Text(f"  ! {run['experiment']} {run['workload']} failed: {run['error']}", style="yellow")
        )
    if len(errors) > 5:
        console.print(f"  ! and {len(errors) - 5} more failed; see results.json", style="yellow")
    for finding in record["findings"]:
        console.print(Text(f"  ✗ {finding}", style="red"))
    _closing(record, console)


def _headline(record: dict[str, Any]) -> Text:
    words = {
        True: ("nothing speaks against compare here", "bold green"),
        False: ("compare errs more often than it promises", "bold red"),
        None: ("no comparison came to a verdict", "bold magenta"),
    }
    text, style = words[record["holds"]]
    line = Text("  ").append(text, style=style)
    sessions = len(record["sessions"])
    line.append(f"   {len(record['runs'])} comparisons on {record['device']}", style="dim")
    return line.append(f" in {sessions} sessions" if sessions > 1 else "", style="dim")


def _rates(rates: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1))
    for column in ("", "workload", "k of n", "95 % interval"):
        table.add_column(column, no_wrap=True)
    last = ""
    for rate in rates:
        what = _WHATS[rate["experiment"], rate["what"]]
        interval = f"{rate['low']:.1%} to {rate['high']:.1%}"
        table.add_row(what if what != last else "", rate["workload"], f"{rate['k']} of {rate['n']}", interval)
        last = what
    return table


def _verdicts(runs: list[dict[str, Any]]) -> list[str]:
    """How the comparisons of each experiment came out."""
    lines = []
    for experiment, name in _NAMES.items():
        mine = [run["verdict"] or "error" for run in runs if run["experiment"] == experiment]
        if mine:
            counted = ", ".join(f"{mine.count(v)} {v}" for v in _VERDICTS if v in mine)
            lines.append(f"  {name}: {counted}")
    return lines


def _linearity(line: dict[str, Any]) -> Text:
    points = ", ".join(f"{true:g} % → {measured:.1f} %" for true, measured in line["points"][:8])
    more = f", {len(line['points']) - 8} more" if len(line["points"]) > 8 else ""
    return Text(
        f"  {line['workload']}: measured on true slowdown has slope {line['slope']:.3f} "
        f"[{line['low']:.3f}, {line['high']:.3f}], n {line['n']} ({points}{more})"
    )


def run_line(run: dict[str, Any]) -> str:
    """One comparison in one line."""
    extra = f" +{run['percent']:g} %" if run["percent"] else ""
    name = f"{run['experiment']} {run['workload']}{extra}{', swapped' if run['swapped'] else ''}"
    if run["verdict"] is None:
        return f"{name}: failed: {run['error']}"
    speed = f"({run['reason']})"
    if run["ratio"] is not None:
        speed = f"{run['ratio']:.4f} [{run['low']:.4f}, {run['high']:.4f}]"
    return f"{name}: {run['verdict']} {speed}, {run['seconds']:.0f} s"


def _closing(record: dict[str, Any], console: Console) -> None:
    session = record["sessions"][-1]
    if session["ran"] < session["planned"]:
        console.print(
            f"  stopped after {session['ran']} of {session['planned']}: what was done is kept", style="yellow"
        )
    device = "" if record["device"] == "cpu" else f" --device {record['device']}"
    console.print(
        Text.assemble(("  results  ", "bold"), f"{record['folder']}/results.json, raw quads in raw/"),
        soft_wrap=True,
    )
    console.print(
        Text.assemble(
            (f"  run {record['run_id']}   ", "bold"),
            ("add more: ", "bold"),
            f"trackside selfcheck{device} --budget {record['budget']:g} --out {record['folder']}",
        ),
        soft_wrap=True,
    )
    console.print()
