"""`trackside selfcheck`: how often is compare itself wrong, on this machine?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackside.cli.terminal import JsonOption, narration, results, verb_app, write_json
from trackside.records.devices import gpu_index
from trackside.records.errors import TracksideError

if TYPE_CHECKING:
    from trackside.comparison.selfcheck_plan import Experiment

__all__ = ["app"]

app = verb_app()

_EXIT_FINDING, _EXIT_NOTHING_JUDGED, _EXIT_INTERRUPTED = 1, 4, 130


@app.command()
def selfcheck(
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    runs: Annotated[
        int,
        typer.Option(
            min=1,
            help="A/A comparisons, and as many with injected slowdown; swaps and linearity come on top.",
        ),
    ] = 10,
    budget: Annotated[float, typer.Option(help="Seconds of each comparison, as in compare --budget.")] = 60.0,
    seconds: Annotated[
        float | None, typer.Option(help="Stop in time for this many seconds in all, and keep what is done.")
    ] = None,
    experiment: Annotated[
        list[str] | None,
        typer.Option(help="aa, injected, swap or linearity; may be repeated."),
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="Only this built-in workload; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for results and raw quads; a second call with the same folder adds to it."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(min=1, max=4, help="Start the next comparison while the present one holds the device."),
    ] = 1,
    as_json: JsonOption = False,
) -> int:
    """How often is compare itself wrong, on this machine?

    Runs whole comparisons of built-in workloads whose true ratio is known: a file against its own copy,
    against itself with a few percent more work, in both orders, and with more and more work. Each takes up
    to --budget seconds.

    Exit codes: 0 nothing speaks against compare; 1 an error rate is too high beyond doubt, honest code was
    rejected, more work made a file faster, or the measured slowdowns do not grow like the true ones; 4 no
    comparison came to a verdict.
    """
    from trackside.comparison.selfcheck import Options, run_selfcheck

    _validate(device, budget, seconds)
    options = Options(
        device=device,
        runs=runs,
        budget=budget,
        seconds=seconds,
        experiments=_experiments(experiment),
        workloads=tuple(workload or ()),
        out=out,
        jobs=jobs,
    )
    record = run_selfcheck(options, _Narrator(options.budget, options.jobs).update)
    if as_json:
        write_json(record.to_dict())
    else:
        from trackside.report.selfcheck_text import render

        render(record.to_dict(), results())
    if record.sessions[-1].interrupted:
        return _EXIT_INTERRUPTED
    if record.holds is None:
        return _EXIT_NOTHING_JUDGED
    return 0 if record.holds else _EXIT_FINDING


def _validate(device: str, budget: float, seconds: float | None) -> None:
    gpu_index(device)
    if not 5 <= budget <= 86_400:
        raise TracksideError("usage", f"found --budget {budget}", "needed: 5 to 86400 seconds")
    if seconds is not None and not seconds > 0:
        raise TracksideError("usage", f"found --seconds {seconds}", "needed: a positive number")


def _experiments(names: list[str] | None) -> tuple[Experiment, ...]:
    from trackside.comparison.selfcheck_plan import EXPERIMENTS

    unknown = set(names or ()) - set(EXPERIMENTS)
    if unknown:
        raise TracksideError(
            "usage", f"found --experiment {', '.join(sorted(unknown))}", f"needed: {', '.join(EXPERIMENTS)}"
        )
    return tuple(e for e in EXPERIMENTS if not names or e in names)


class _Narrator:
    """One line on stderr for each comparison that ended."""

    def __init__(self, budget: float, jobs: int) -> None:
        self._console = narration()
        self._budget, self._jobs = budget, jobs

    def update(self, event: dict[str, Any]) -> None:
        from trackside.report.selfcheck_text import run_line

        if event["phase"] == "plan":
            # Starting and ending the processes of a comparison takes some ten seconds more.
            most = event["planned"] * (self._budget + 10) / 60
            before = f", added to {event['earlier']} earlier ones" if event["earlier"] else ""
            text = (
                f"{event['planned']} comparisons{before}: up to {most:.0f} min; results in {event['folder']}"
            )
        else:
            text = f"{event['done']} of {event['planned']}  {run_line(event['run'].model_dump())}"
        self._console.print(text, markup=False, soft_wrap=True)
