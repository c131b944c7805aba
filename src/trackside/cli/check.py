"""`trackside check`: a suite evaluated once, for CI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackside.cli.terminal import JsonOption, narration, results, verb_app, write_json
from trackside.records.errors import TracksideError, printable

if TYPE_CHECKING:
    from trackside.suite.suite_file import Suite

__all__ = ["app"]

app = verb_app()

# A report that was asked for and is not there, where everything else holds.
_EXIT_FAILURE = 2


@app.command()
def check(
    suite: Annotated[
        Path | None, typer.Option(help="The suite file (default: trackside.toml here or in a folder above).")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this workload; may be repeated.")] = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept", help="Record the present ratios of workloads with a `reference` as the standard."
        ),
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML there.")] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="Write a summary for a pull request there; $GITHUB_STEP_SUMMARY gets it anyway."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Say what would be evaluated, and end.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Does everything that trackside.toml claims hold?

    Each workload is compared with its baseline's code, or its time, in units of a reference that is timed
    in turn with it, with the accepted one.

    Exit codes, the first that applies to any workload: 1 a claim failed, 2 one could not be run, 4 one is
    inconclusive, 3 one is not comparable here; 0 all hold. 130 after Ctrl-C, with what was done kept.
    """
    from trackside.suite.suite_file import find_suite, load_suite

    read = load_suite(suite if suite is not None else find_suite())
    if list_:
        return _list(read, only or [], as_json)
    from trackside.report.check_junit import junit as to_junit
    from trackside.report.check_markdown import markdown as to_markdown
    from trackside.report.check_text import render
    from trackside.suite.check import CheckOptions, run_check

    for path in (junit, markdown):
        if path is not None and not path.absolute().parent.is_dir():
            raise TracksideError(
                "usage", f"found no folder {path.absolute().parent} for {path.name}", "create it first"
            )
    record = run_check(CheckOptions(read, tuple(only or ()), accept), _Narrator().update)
    document = record.to_dict()
    if as_json:
        write_json(document)
    else:
        render(document, results())
    # After the results, and without an error document beside them: a disk that refuses these costs no more.
    written = True
    if junit is not None:
        written &= _write(junit, to_junit(document))
    if markdown is not None:
        written &= _write(markdown, to_markdown(document).encode())
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        _write(Path(summary), to_markdown(document).encode(), append=True)
    return record.exit_code if written or record.exit_code else _EXIT_FAILURE


def _list(suite: Suite, only: list[str], as_json: bool) -> int:
    from trackside.suite.check import chosen

    entries = chosen(suite, only)
    if as_json:
        shown = [
            {
                "name": entry.name,
                "mode": entry.mode,
                "baseline": str(entry.baseline),
                "candidate": str(entry.candidate) if entry.mode == "baseline" else None,
                "reference": str(entry.reference) if entry.reference else None,
                "device": entry.device,
                "claim": entry.claim if entry.mode == "baseline" else None,
                "budget": entry.budget,
                "delta": entry.threshold,
            }
            for entry in entries
        ]
        write_json(
            {
                "schema": "trackside.suite/1",
                "suite": str(suite.path),
                "total": len(suite.entries),
                "shown": len(shown),
                "workloads": shown,
            }
        )
        return 0
    console = results()
    for entry in entries:
        what = f"{entry.candidate.name} {entry.claim} than {entry.baseline.name}"
        if entry.mode == "accepted":
            what = f"{entry.candidate.name} in units of {entry.reference.name if entry.reference else '?'}"
        line = f"{entry.name}: {what}, {entry.device}, {entry.budget:g} s"
        console.print(printable(line), markup=False, soft_wrap=True)
    console.print("next: trackside check")
    return 0


class _Narrator:
    """One line when an entry begins and one for each of its phases, on stderr."""

    def __init__(self) -> None:
        self._console = narration()
        self._phase = ""

    def update(self, event: dict[str, Any]) -> None:
        if event["phase"] == "entry":
            self._say(f"{event['number']} of {event['count']}: {event['entry'].name}")
            self._phase = ""
        elif event["phase"] == "line" and event["line"].partition(":")[0] != self._phase:
            # Counters change with every pair; what they count is worth a line once.
            self._phase = event["line"].partition(":")[0]
            self._say(f"  {event['line']}")
        elif event["phase"] == "item":
            from trackside.report.check_text import outcome_text

            item = event["item"]
            # Where something was measured, that is why; reasons may be remarks on it.
            told = item.reasons[:1] if item.change is None else []
            self._say("  " + ": ".join([outcome_text(item.model_dump()), *told]))

    def _say(self, text: str) -> None:
        self._console.print(printable(text), markup=False, soft_wrap=True)


def _write(path: Path, data: bytes, append: bool = False) -> bool:
    """Whether it could be written; why not is said on stderr."""
    try:
        with path.open("ab" if append else "wb") as file:
            file.write(data)
    except OSError as error:
        line = f"error: cannot write {path}: {error.strerror}"
        narration().print(printable(line), markup=False, soft_wrap=True)
        return False
    return True
