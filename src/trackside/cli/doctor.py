"""`trackside doctor`: what is wrong with this machine, and with a script."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trackside.cli.terminal import JsonOption, narration, results, say_remarks, verb_app, write_json
from trackside.records.errors import TracksideError

if TYPE_CHECKING:
    from trackside.machine.doctor.probe import Finding, Probe

__all__ = ["app"]

app = verb_app()

_EXIT_FINDING = 1


@app.command()
def doctor(
    script: Annotated[Path | None, typer.Argument(help="A Python script to read too; it is not run.")] = None,
    family: Annotated[
        list[str] | None, typer.Option(help="Only this family of the checklist; may be repeated.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option(metavar="ID", help="All about one item, and what its probe found here.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Show what passed and does not apply, too.")] = False,
    fixes: Annotated[
        Path | None,
        typer.Option("--fix-script", metavar="FILE", help="Write the fixes as a shell script to review."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """What is wrong with this machine, and with a script?

    Reads /proc, /sys, NVML, the environment and the script's source, and changes nothing. What it looks for
    is in the checklist: `trackside handbook list`.

    Exit codes: 0 nothing fails (there may be warnings); 1 something does.
    """
    from trackside.machine.doctor.checkup import check_up
    from trackside.machine.doctor.fix_script import fix_script
    from trackside.machine.doctor.probe import probes
    from trackside.store.runs import RunStore

    if fixes is not None:
        _see_that_it_is_ours(fixes)
    chosen = _chosen(probes(), family, explain)
    if script is None and explain is None:
        chosen = [one for one in chosen if one.about == "machine"]
    store = RunStore()
    checkup = check_up(script, chosen, store)
    say_remarks(store)
    if fixes is not None:
        _write(fixes, fix_script(checkup.findings))
        narration().print(f"wrote {fixes}: read it, then APPLY=1 sh {fixes}", soft_wrap=True, markup=False)
    if as_json:
        write_json(checkup.record.to_dict())
    else:
        from trackside.report.doctor_text import explain_item, render

        if explain is not None:
            explain_item(checkup.record.to_dict(), checkup.findings[0].item, results())
        else:
            render(checkup.record.to_dict(), results(), everything=all_)
    return _EXIT_FINDING if _fails(checkup.findings) else 0


def _fails(findings: list[Finding]) -> bool:
    return any(finding.outcome.status == "fail" for finding in findings)


def _chosen(every: tuple[Probe, ...], names: list[str] | None, explain: str | None) -> list[Probe]:
    from trackside.handbook.lookup import find_family, find_item

    if explain is not None:
        item = find_item(explain).id
        found = [one for one in every if one.item == item]
        if not found:
            raise TracksideError(
                "not-found",
                f"no program can check {item} here; its text says how a person does",
                f"trackside handbook show {item}",
            )
        return found
    families = {find_family(name).name for name in names or ()}
    return [one for one in every if not families or one.item.partition(".")[0] in families]


def _see_that_it_is_ours(path: Path) -> None:
    """Refuse to write over anything but an earlier script of this kind."""
    from trackside.machine.doctor.fix_script import HEAD

    try:
        known = not path.exists() or (path.is_file() and path.read_bytes().startswith(HEAD.encode()))
    except OSError:
        known = False
    if not known:
        raise TracksideError(
            "usage", f"{path} is there already, and no script of `doctor`", "name a file that does not exist"
        )


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise TracksideError(
            "usage", f"cannot write {path}: {error.strerror}", "name a file in a folder you may write to"
        ) from error
