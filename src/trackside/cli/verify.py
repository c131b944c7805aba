"""`trackside verify`: does a stored certificate still hold, and what changed since?"""

from __future__ import annotations

from typing import Annotated

import typer

from trackside.cli.terminal import JsonOption, narration, results, say_remarks, verb_app, write_json
from trackside.records.errors import TracksideError

__all__ = ["app"]

app = verb_app()


@app.command()
def verify(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A compare run's id, a unique beginning of it, or `last`.")
    ],
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Also make the comparison again, with its recorded options.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Does a stored certificate still hold? What changed since?

    Looks at the record itself, both files and their helpers, the machine and the versions.

    Exit codes: 0 everything still holds, 1 something changed, or the run was not certified, or --rerun came
    out otherwise; 2 --rerun of a file that changed, 3 --rerun on another machine, 4 no change seen, but not
    everything could be looked at.
    """
    from trackside.comparison import certificate
    from trackside.store.runs import RunStore

    store = RunStore()
    document = store.load(run)
    say_remarks(store)
    schema = str(document.get("schema"))
    if not schema.startswith("trackside.compare/"):
        raise TracksideError(
            "store",
            f"found: run {store.resolve(run)} is {schema}; needed: a comparison",
            "trackside runs list --verb compare",
        )
    found = certificate.check(document)
    if rerun:
        console = narration()
        seen: set[str] = set()

        def tell(event: dict[str, object]) -> None:
            phase = str(event["phase"])
            if phase not in seen:
                seen.add(phase)
                console.print(f"comparing again: {phase}", highlight=False)

        found = certificate.compare_again(document, found, tell)
    shown = found.to_dict()
    if as_json:
        write_json(shown)
    else:
        from trackside.report.verify_text import render

        render(shown, results())
    if found.holds:
        return 0
    return 1 if found.changed else 4
