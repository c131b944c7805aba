"""`trackside runs`: past runs, listed and shown again from their records."""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trackside.cli.terminal import JsonOption, results, verb_app, write_json
from trackside.records.errors import TracksideError, printable
from trackside.store.runs import RunStore, RunSummary

if TYPE_CHECKING:
    from rich.console import Console

    from trackside.records.profile import ProfileRecord

__all__ = ["app"]

app = verb_app("List past runs, show one, or see what changed between two profiles.")

_DEFAULT_LIMIT: Final = 20

# A schema's own view is a module of trackside.report with `render(record, console)`; others get a table.
_RENDERERS: Final = {
    "trackside.compare/1": "trackside.report.compare_text",
    "trackside.profile/1": "trackside.report.profile_text",
    "trackside.selfcheck/1": "trackside.report.selfcheck_text",
    "trackside.doctor/1": "trackside.report.doctor_text",
    "trackside.machine/1": "trackside.report.machine_text",
    "trackside.ceilings/1": "trackside.report.ceilings_text",
}

_STATE_STYLES: Final = {"failed": "red", "running": "cyan", "died": "yellow", "unreadable": "red"}


@app.command("list")
def list_(
    verb: Annotated[str | None, typer.Option(help="Only runs of this verb.")] = None,
    limit: Annotated[
        int, typer.Option(min=0, help="At most this many, the newest; 0 shows all.")
    ] = _DEFAULT_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """List past runs, newest first."""
    store = RunStore()
    summaries = store.list(verb=verb, limit=limit or None)
    total = store.count(verb=verb)
    if as_json:
        document = {
            "schema": "trackside.runs/1",
            "root": printable(str(store.root)),
            "total": total,
            "shown": len(summaries),
            "runs": [_entry(summary) for summary in summaries],
        }
        write_json(document)
        return
    console = results()
    if not summaries:
        kind = f"{verb} runs" if verb else "runs"
        console.print(printable(f"no {kind} in {store.root}"), soft_wrap=True, markup=False)
        return
    _print_list(console, summaries)
    if total > len(summaries):
        console.print(f"{len(summaries)} of {total} runs; `trackside runs list --limit 0` shows all")
    console.print(f"next: trackside runs show {summaries[0].id}")


@app.command()
def show(
    run: Annotated[
        str, typer.Argument(metavar="ID", help="A run's id, a unique beginning of it, or `last`.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show one run's record."""
    store = RunStore()
    run_id = store.resolve(run)
    record = store.load(run_id)
    if as_json:
        write_json(record)
        return
    console = results()
    renderer = _renderer(record.get("schema"))
    if renderer is not None:
        try:
            renderer.render(record, console)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise TracksideError(
                "store",
                f"found: the record of run {run_id} is not whole ({type(error).__name__}: {error}); needed: "
                f"one as {record.get('schema')} has it",
                f"see it as it is: trackside runs show {run_id} --json",
            ) from error
    else:
        _print_facts(console, record)
    console.print(f"run {run_id}, record sha256 {store.record_sha256(run_id)}", soft_wrap=True)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A profile's id, or a beginning of it.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="A later one's, or `last`.")],
    as_json: JsonOption = False,
) -> None:
    """Where did the time go between two profiles?"""
    from trackside.profiling.diff import diff_profiles
    from trackside.report.profile_diff_text import render

    found = diff_profiles(_profile(before), _profile(after)).to_dict()
    if as_json:
        write_json(found)
    else:
        render(found, results())


def _profile(run: str) -> "ProfileRecord":
    from trackside.records.profile import ProfileRecord

    store = RunStore()
    run_id = store.resolve(run)
    record = store.load(run_id)
    if record.get("schema") != "trackside.profile/1":
        raise TracksideError(
            "store",
            f"found: run {run_id} is {record.get('schema')}; needed: a profile",
            "trackside runs list --verb profile",
        )
    return ProfileRecord.from_dict(record)


def _entry(summary: RunSummary) -> dict[str, Any]:
    # A path need not be text, and the reason may name one.
    shown = {"folder": printable(str(summary.folder)), "reason": summary.reason and printable(summary.reason)}
    return dataclasses.asdict(summary) | shown


def _print_list(console: "Console", summaries: list[RunSummary]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    # In full on any terminal: an id that is cut cannot be copied.
    table.add_column("run", no_wrap=True, min_width=max(len(summary.id) for summary in summaries))
    table.add_column("verb", no_wrap=True, min_width=max(len(summary.verb) for summary in summaries))
    table.add_column("started (UTC)", no_wrap=True, min_width=len("2026-11-16 10:54"))
    table.add_column("result", overflow="fold")
    for summary in summaries:
        table.add_row(
            summary.id,
            summary.verb,
            summary.started[:16].replace("T", " "),
            Text(_result(summary), style=_STATE_STYLES.get(summary.state, "")),
        )
    console.print(table)


def _result(summary: RunSummary) -> str:
    """What came out, of what was compared, and why there is no more."""
    parts: list[str] = [] if summary.state == "done" and summary.verdict else [summary.state]
    if summary.verdict is not None:
        parts.append(summary.verdict + ("" if summary.certified in (None, True) else ", not certified"))
    compared = f"{summary.about}: " if summary.about else ""
    reason = f" ({summary.reason})" if summary.reason else ""
    return printable(compared + ", ".join(parts) + reason)


def _print_facts(console: "Console", record: Mapping[str, Any]) -> None:
    """Every top-level field, long ones by their size, so that no record is without a view."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in record.items():
        table.add_row(name, Text(_fact(value)))
    console.print(table)


def _fact(value: object) -> str:
    if isinstance(value, dict):
        plain = all(not isinstance(inner, dict | list) for inner in value.values())
        if plain and len(value) <= 8:
            return ", ".join(f"{name} {_fact(inner)}" for name, inner in value.items())
        return f"{len(value)} fields: {', '.join(value)}"
    if isinstance(value, list):
        if len(value) <= 5 and all(isinstance(inner, str | int | float) for inner in value):
            return ", ".join(_fact(inner) for inner in value) or "none"
        return f"{len(value)} entries (all of them with --json)"
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return "-"
    return str(value)


def _renderer(schema: object) -> Any:
    name = _RENDERERS.get(schema) if isinstance(schema, str) else None
    return importlib.import_module(name) if name is not None else None
