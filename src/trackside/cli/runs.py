"""`trackside runs`: past runs, listed, shown, compared, removed, and moved to another store."""

import dataclasses
import importlib
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

from trackside.cli.terminal import JsonOption, results, say_remarks, verb_app, write_json
from trackside.records.errors import TracksideError, printable
from trackside.store.runs import RunState, RunStore, RunSummary
from trackside.store.selection import RunFilter, age_ns, moment_ns, size_bytes

if TYPE_CHECKING:
    from trackside.records.profile import ProfileRecord
    from trackside.store.retention import Removal, Retention

__all__ = ["app"]

app = verb_app("List past runs, show one, see what changed between two profiles; remove, export and import.")

_DEFAULT_LIMIT: Final = 20

_STATES: Final[tuple[str, ...]] = get_args(RunState)

# A schema's own view is a module of trackside.report with `render(record, console)`; others get a table.
_RENDERERS: Final = {
    "trackside.compare/1": "trackside.report.compare_text",
    "trackside.check/1": "trackside.report.check_text",
    "trackside.profile/1": "trackside.report.profile_text",
    "trackside.selfcheck/1": "trackside.report.selfcheck_text",
    "trackside.doctor/1": "trackside.report.doctor_text",
    "trackside.machine/1": "trackside.report.machine_text",
    "trackside.ceilings/1": "trackside.report.ceilings_text",
}


@app.command("list")
def list_(
    verb: Annotated[str | None, typer.Option(help="Only runs of this verb.")] = None,
    verdict: Annotated[str | None, typer.Option(help="Only runs with this verdict.")] = None,
    state: Annotated[str | None, typer.Option(help=f"Only runs in this state: {', '.join(_STATES)}.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only later ones: `7d` (s, m, h, d, w), a date or a time in UTC."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only earlier ones; a date is meant with its whole day."),
    ] = None,
    about: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only runs about this: part of a file's name.")
    ] = None,
    # No default for Typer: it would import pydantic to see that 20 is a number.
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help=f"At most this many, the newest; {_DEFAULT_LIMIT} if not given, 0 shows all."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List past runs, newest first."""
    store = RunStore()
    wanted = _filter(verb, verdict, state, since, until, about)
    found = store.find(wanted, (_DEFAULT_LIMIT if limit is None else limit) or None)
    say_remarks(store)
    if as_json:
        document = {
            "schema": "trackside.runs/1",
            "root": printable(str(store.root)),
            "total": found.total,
            "shown": len(found.runs),
            "runs": [_entry(summary) for summary in found.runs],
        }
        write_json(document)
        return
    console = results()
    if not found.runs:
        only_verb = wanted == RunFilter(verb=verb)
        kind = "such runs" if not only_verb else f"{verb} runs" if verb else "runs"
        console.print(printable(f"no {kind} in {store.root}"), soft_wrap=True, markup=False)
        return
    from trackside.report.runs_text import render_list

    render_list(found.runs, console)
    if found.total > len(found.runs):
        given = {
            "verb": verb,
            "verdict": verdict,
            "state": state,
            "since": since,
            "until": until,
            "about": about,
        }
        filters = "".join(
            f"--{name} {shlex.quote(text)} " for name, text in given.items() if text is not None
        )
        all_of_them = f"`trackside runs list {filters}--limit 0` shows all"
        console.print(
            printable(f"{len(found.runs)} of {found.total} runs; {all_of_them}"), soft_wrap=True, markup=False
        )
    console.print(f"next: trackside runs show {found.runs[0].id}")


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
    say_remarks(store)
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
        from trackside.report.runs_text import render_facts

        render_facts(record, console)
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


@app.command()
def rm(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Ids, unique beginnings of them, or `last`.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Runs that began longer ago: `30d` (s, m, h, d, w).")
    ] = None,
    larger_than: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The oldest, while all runs together are larger: `2GB`."),
    ] = None,
    keep_last: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Keep the newest N in any case; alone, remove all others."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove runs, for good: those that are named, or those that the rules take.

    Asks nothing, and never removes a run that is under way.
    """
    from trackside.store.retention import chosen, named, remove

    rules = _rules(older_than, larger_than, keep_last)
    if bool(runs) == (rules is not None):
        raise TracksideError(
            "usage",
            f"found {'both ids and rules' if runs else 'neither ids nor a rule'}; needed: one of them",
            "trackside runs rm ID, or trackside runs rm --older-than 30d --dry-run",
        )
    store = RunStore()
    removals = chosen(store, rules) if rules is not None else named(store, runs or [])
    if not dry_run:
        removals = remove(store, removals)
    left = store.count() - (len(removals) if dry_run else 0)
    say_remarks(store)
    _report_removals(store, removals, left, dry_run, as_json)


@app.command("export")
def export(
    runs: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Ids, unique beginnings of them, or `last`.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write, such as runs.tar.gz.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write runs into one file, to take them elsewhere: record, report, trace."""
    from trackside.report.sizes import told_bytes
    from trackside.store.archive import export_runs

    store = RunStore()
    done = export_runs(store, runs, out, replace=force)
    say_remarks(store)
    if as_json:
        write_json(
            {
                "schema": "trackside.runs-export/1",
                "path": printable(str(done.path.absolute())),
                "bytes": done.bytes,
                "runs": done.ids,
                "left_out": [printable(name) for name in done.left_out],
            }
        )
        return
    console = results()
    told = f"{len(done.ids)} runs" if len(done.ids) != 1 else f"run {done.ids[0]}"
    console.print(
        printable(f"{done.path}: {told}, {told_bytes(done.bytes)}"),
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
    for name in done.left_out:
        console.print(printable(f"left out, no plain file: {name}"), soft_wrap=True, markup=False)
    console.print(
        printable(f"next, elsewhere: trackside runs import {done.path.name}"), soft_wrap=True, markup=False
    )


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `runs export` wrote.")],
    as_json: JsonOption = False,
) -> None:
    """Take the runs of an exported file into the store: all of them, or none.

    A run that is there already, with the same bytes, is left alone.
    """
    from trackside.store.archive import import_runs

    store = RunStore()
    done = import_runs(store, file)
    if as_json:
        write_json(
            {
                "schema": "trackside.runs-import/1",
                "root": printable(str(store.root)),
                "imported": done.ids,
                "present": done.present,
            }
        )
        return
    console = results()
    for run_id in done.ids:
        console.print(f"imported {run_id}")
    for run_id in done.present:
        console.print(f"already here {run_id}")
    console.print(f"next: trackside runs show {(done.ids or done.present)[0]}")


def _filter(
    verb: str | None,
    verdict: str | None,
    state: str | None,
    since: str | None,
    until: str | None,
    about: str | None,
) -> RunFilter:
    known = next((one for one in get_args(RunState) if one == state), None)
    if state is not None and known is None:
        raise TracksideError(
            "usage",
            f"found state {state!r}; needed: one of {', '.join(_STATES)}",
            "trackside runs list --help",
        )
    now_ns = time.time_ns()
    return RunFilter(
        verb=verb,
        verdict=verdict,
        state=known,
        since_ns=None if since is None else moment_ns(since, now_ns),
        until_ns=None if until is None else moment_ns(until, now_ns, end=True),
        about=about,
    )


def _rules(older_than: str | None, larger_than: str | None, keep_last: int | None) -> "Retention | None":
    from trackside.store.retention import Retention

    if older_than is None and larger_than is None and keep_last is None:
        return None
    return Retention(
        before_ns=None if older_than is None else time.time_ns() - age_ns(older_than),
        most_bytes=None if larger_than is None else size_bytes(larger_than),
        keep_last=keep_last or 0,
    )


def _report_removals(
    store: RunStore, removals: list["Removal"], left: int, dry_run: bool, as_json: bool
) -> None:
    from trackside.report.sizes import told_bytes

    freed = sum(removal.bytes for removal in removals)
    if as_json:
        write_json(
            {
                "schema": "trackside.runs-rm/1",
                "root": printable(str(store.root)),
                "dry_run": dry_run,
                "removed": [{"id": removal.run.id, "bytes": removal.bytes} for removal in removals],
                "freed_bytes": freed,
                "left": left,
            }
        )
        return
    console = results()
    word = "would remove" if dry_run else "removed"
    for removal in removals:
        console.print(f"{word} {removal.run.id}  {told_bytes(removal.bytes)}", soft_wrap=True)
    number = f"{len(removals)} run{'' if len(removals) == 1 else 's'}"
    console.print(f"{word} {number}, {told_bytes(freed)}; {left} {'would be ' if dry_run else ''}left")


def _profile(run: str) -> "ProfileRecord":
    from trackside.records.profile import ProfileRecord

    store = RunStore()
    run_id = store.resolve(run)
    say_remarks(store)
    record = store.load(run_id)
    if record.get("schema") != "trackside.profile/1":
        raise TracksideError(
            "store",
            f"found: run {run_id} is {record.get('schema')}; needed: a profile",
            "trackside runs list --verb profile",
        )
    return ProfileRecord.from_dict(record)


def _entry(summary: RunSummary) -> dict[str, Any]:
    facts = {field.name: getattr(summary, field.name) for field in dataclasses.fields(summary)}
    del facts["runs"]
    # A path need not be text, and the reason may name one.
    shown = {"folder": printable(str(summary.folder)), "reason": summary.reason and printable(summary.reason)}
    return facts | shown


def _renderer(schema: object) -> Any:
    name = _RENDERERS.get(schema) if isinstance(schema, str) else None
    return importlib.import_module(name) if name is not None else None
