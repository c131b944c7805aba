"""`trackside ceilings`: what this machine really does."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from trackside.cli.terminal import JsonOption, narration, results, verb_app, write_json
from trackside.records.errors import TracksideError

__all__ = ["app"]

app = verb_app()

# A century: nobody means more, and timedelta ends at some point.
_MOST_DAYS = 36_500


@app.command()
def ceilings(
    place: Annotated[
        list[str] | None,
        typer.Argument(help="cpu, disk, cuda (all GPUs) or cuda:N; by default all that there are."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Measure the disk that this folder lies on.")] = Path(),
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again, whatever is kept.")] = False,
    age: Annotated[float, typer.Option(help="Days that kept figures may be old.")] = 7.0,
    as_json: JsonOption = False,
) -> int:
    """What does this machine really do?

    Measures memory, arithmetic, copies, launches and reads on random data, one after the other, and says what
    follows: on a GPU in about a minute, on CPUs and disk in half of one. Figures are kept for this machine.
    """
    from trackside.machine.ceiling_suite.suite import PLACES, Options, measured_ceilings

    known = [one for one in place or PLACES if one in PLACES or one.startswith("cuda:")]
    if place and len(known) < len(place):
        wrong = next(one for one in place if one not in known)
        raise TracksideError("usage", f"found {wrong}", f"needed: {', '.join(PLACES)} or cuda:N")
    # Written so that nan fails too.
    if not 0 <= age <= _MOST_DAYS:
        raise TracksideError("usage", f"found --age {age:g}", f"needed: 0 to {_MOST_DAYS} days")
    console = narration()
    record = measured_ceilings(
        Options(known, folder, fresh, timedelta(days=age)),
        lambda where, what: console.print(f"{where}: {what}", markup=False, soft_wrap=True),
    )
    if as_json:
        write_json(record.to_dict())
    else:
        from trackside.report.ceilings_text import render

        render(record.to_dict(), results())
    return 0
