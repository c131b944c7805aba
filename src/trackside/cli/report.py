"""`trackside report`: the page of a profile, written again from its record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trackside.cli.terminal import JsonOption, results, say_remarks, verb_app, write_json
from trackside.records.errors import TracksideError, printable

if TYPE_CHECKING:
    from trackside.store.runs import RunStore

__all__ = ["app"]

app = verb_app()

_SCHEMA = "trackside.profile/1"
_NO_BROWSER = "there is no browser that can be opened here"


@app.command()
def report(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A profile's id, a unique beginning of it, or `last`.")
    ] = "last",
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Where is the page of a profile? Writes it again from its record, and says where it lies.

    One file that needs nothing else: it can be mailed, and opened without a network.
    """
    from trackside.report.profile_html import write_report
    from trackside.store.files import store_errors
    from trackside.store.runs import RunStore

    store = RunStore()
    run_id = _resolved(store, run)
    say_remarks(store)
    record = store.load(run_id)
    if record.get("schema") != _SCHEMA:
        raise TracksideError(
            "usage",
            f"run {run_id} is a {record.get('schema')}, and only profiles have a page",
            f"trackside runs show {run_id}",
        )
    path = out if out is not None else store.root / "runs" / run_id / "report.html"
    with store_errors(path, "write", "name a file that you can write: --out FILE.html"):
        write_report(record, path)
    if as_json:
        # The page is written, and one document says both: an error would be a second one.
        opened = open_ and _opened(path)
        document = {"schema": "trackside.report/1", "run_id": run_id, "path": printable(str(path.absolute()))}
        write_json(document | {"opened": opened, "reason": _NO_BROWSER if open_ and not opened else None})
        return 0
    results().print(printable(str(path)), soft_wrap=True, markup=False)
    if open_ and not _opened(path):
        raise TracksideError("unsupported", _NO_BROWSER, f"open it elsewhere: {path.absolute()}")
    return 0


def _resolved(store: RunStore, reference: str) -> str:
    """`last` is the newest profile, whatever ran since."""
    if reference != "last":
        return store.resolve(reference)
    newest = store.list(verb="profile", limit=1)
    if not newest:
        raise TracksideError(
            "not-found", f"there is no profile in {store.root}", "run `trackside profile SCRIPT` first"
        )
    return newest[0].id


def _opened(path: Path) -> bool:
    import webbrowser

    return webbrowser.open(path.absolute().as_uri())
