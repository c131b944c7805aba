"""`trackside compare`: is the candidate faster than the baseline, and still right?"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackside.cli.terminal import JsonOption, narration, results, say_remarks, verb_app, write_json
from trackside.records.errors import TracksideError, printable

if TYPE_CHECKING:
    from trackside.store.runs import RunStore

__all__ = ["app"]

app = verb_app()

_RTOL = 1e-6
_EXIT_CODES = {
    "rejected": 1,
    "slower": 1,
    "equivalent": 1,
    "faster": 1,
    "not-comparable": 3,
    "inconclusive": 4,
}
"""When the claim does not hold."""


@app.command()
def compare(
    baseline: Annotated[
        str | None, typer.Argument(help="Workload file, task folder, or with --command a command line.")
    ] = None,
    candidate: Annotated[str | None, typer.Argument(help="The file or command to judge.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    metric: Annotated[
        str,
        typer.Option(help="device: the work alone; wall: a whole call from the host; not with --command."),
    ] = "device",
    claim: Annotated[str, typer.Option(help="What exit code 0 means: faster, or not-slower.")] = "faster",
    budget: Annotated[
        float | None,
        typer.Option(
            help="Seconds for the whole comparison, compilation aside "
            "(default 60, on a GPU 40, with --quick 15)."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Smallest relative difference that matters (default 0.02 on a CPU, 0.005 on a GPU)."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two worker pairs and 15 seconds: a first look, never certified.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable inputs; known seeds lower the certificate.")
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            help="Worker pairs, with --command blocks of runs (default 12 on a CPU, 6 on a GPU and with "
            "--command; at least 2, certified from 3 on)."
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            help="Threads of each arm (default: all cores but the judge's; on a GPU half the cores, up to 8)."
        ),
    ] = None,
    build_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds for loading, set-up and compilation; with --command for each one's first run."
        ),
    ] = 300.0,
    command: Annotated[
        bool, typer.Option("--command", help="Compare two command lines instead of two files.")
    ] = False,
    output: Annotated[
        list[str] | None,
        typer.Option(help="With --command: a file that both commands write, to be compared."),
    ] = None,
    rtol: Annotated[
        float, typer.Option(help="With --command: how far apart printed or saved numbers may be.")
    ] = _RTOL,
    explain: Annotated[
        str | None,
        typer.Option(help="Say what a check looks for, and what it saw in the last finished comparison."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Is CANDIDATE faster than BASELINE, and still right?

    With --command, `{seed}` in both command lines becomes a fresh number in each pair of runs, the same for
    both.

    Exit codes: 0 the claim holds, 1 it does not, 3 not comparable here, 4 inconclusive.
    """
    if explain is not None:
        return _explain(explain, as_json)
    if baseline is None or candidate is None:
        raise TracksideError(
            "usage", "found no two things to compare", "trackside compare BASELINE CANDIDATE"
        )
    from trackside.comparison.options import budget_of

    if command:
        from trackside.comparison.commands import CommandOptions, run_commands

        given = {
            "--device": device != "cpu",
            "--threads": threads is not None,
            "--metric": metric != "device",
        }
        for name in (name for name, is_given in given.items() if is_given):
            raise TracksideError(
                "usage", f"found {name} with --command", "give it to the commands: they run as they are"
            )
        commands = CommandOptions(
            baseline,
            candidate,
            tuple(output or ()),
            claim=claim,
            budget=budget_of(budget, quick),
            delta=delta,
            quick=quick,
            pairs=pairs,
            seed=seed,
            timeout=build_timeout,
            rtol=rtol,
        )
        commands.check()
        from trackside.profiling.devices import take_gpus
        from trackside.store.left_aside import put_back_left

        for sentence in put_back_left(Path.cwd(), commands.outputs):
            narration().print(printable(f"trackside: {sentence}"), markup=False, soft_wrap=True)
        with _Live() as live, contextlib.ExitStack() as gpus:
            # A command may compute on any GPU that it sees. The CPUs come after them, as for everyone.
            take_gpus(gpus, lambda holder: live.update({"phase": "waiting", "holder": holder}), "compare")
            record = run_commands(commands, live.update)
    else:
        if output or rtol != _RTOL:
            found = "--output" if output else "--rtol"
            raise TracksideError(
                "usage", f"found {found} without --command", "add --command, or leave it out"
            )
        from trackside.comparison.trial import Options, run_trial

        options = Options(
            Path(baseline),
            Path(candidate),
            device=device,
            metric=metric,
            claim=claim,
            budget=budget_of(budget, quick, device),
            delta=delta,
            quick=quick,
            seed=seed,
            pairs=pairs,
            threads=threads,
            build_timeout=build_timeout,
        )
        options.check()
        with _Live() as live:
            record = run_trial(options, live.update)
    document = record.to_dict()
    if as_json:
        write_json(document)
    else:
        from trackside.report.compare_text import render

        render(document, results())
    return 0 if record.holds else _EXIT_CODES[record.verdict]


def _explain(name: str, as_json: bool) -> int:
    from trackside.comparison.checks import CATALOGUE
    from trackside.report.compare_text import explain
    from trackside.store.runs import RunStore

    if name not in CATALOGUE:
        import difflib

        near = difflib.get_close_matches(name, CATALOGUE, 3, 0.3) or list(CATALOGUE)[:5]
        raise TracksideError("usage", f"there is no check `{name}`", f"try one of: {', '.join(near)}")
    store = RunStore()
    run_id, record = _last_finished(store)
    say_remarks(store)
    result = next((c for c in record.get("checks", []) if c.get("id") == name), None)
    check = CATALOGUE[name]
    if as_json:
        write_json(
            {
                "schema": "trackside.explain/1",
                "id": check.id,
                "looks_for": check.looks_for,
                "catches": check.catches,
                "on_fail": check.on_fail,
                "run_id": run_id,
                "last": result,
            }
        )
        return 0
    console = results()
    if result is not None:
        # The candidate may have had a say in both; it must not steer the terminal.
        evidence = {name: printable(str(value)) for name, value in result.get("evidence", {}).items()}
        result = result | {"detail": printable(result["detail"]), "evidence": evidence}
    explain(check, result, console)
    if run_id is not None:
        console.print(f"  in run     {run_id}" + ("" if result else ", which has no result of it"))
    return 0


def _last_finished(store: RunStore) -> tuple[str | None, dict[str, Any]]:
    """The newest comparison that came to a verdict, and its record; None where there is none."""
    from trackside.store.selection import RunFilter

    done = store.find(RunFilter(verb="compare", state="done"), 1).runs
    return (done[0].id, store.load(done[0].id)) if done else (None, {})


_PHASES = {
    "start": "starting",
    "waiting": "waiting for the device",
    "baseline": "running the baseline alone: outputs, oracle, speed",
    "audit": "running the candidate: structure, outputs, inputs, lifetime",
    "probes": "probing with inputs off the beaten distribution",
    "floor": "measuring the physical floor",
    "shape": "next shape",
    "quads": "timing",
    "repeat": "running the baseline twice on one input",
    "candidate": "running the candidate on the same input",
}


class _Live:
    """One line on a terminal that changes; elsewhere a line per phase and pair. Always on stderr."""

    def __init__(self) -> None:
        self._console = narration()
        self._status: Any = None
        self._last: tuple[Any, ...] = ()

    def __enter__(self) -> _Live:
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._status is not None:
            self._status.stop()

    def update(self, event: dict[str, Any]) -> None:
        phase = event["phase"]
        text = _PHASES.get(phase, phase)
        if phase == "shape":
            if event["count"] == 1:
                return
            text = f"shape {event['number']} of {event['count']}: {event['shape']}"
        elif phase == "waiting":
            from trackside.store.lock_holders import holder_named

            text = f"waiting: {holder_named(event['holder'])} measures on this device"
        elif phase == "quads":
            low, high = event["low"], event["high"]
            interval = (
                f"ratio so far {low:.3f} to {high:.3f}" if low and high else "too few quads for an interval"
            )
            text = f"timing: pair {event['pair']} of {event['pairs']}, {event['quads']} quads, {interval}"
            if event.get("mhz"):
                text += f", {event['mhz']:.0f} MHz"
        if self._status is not None:
            self._status.update(text)
            return
        # Not each of thousands of quads; but each pair, or nothing would be said for most of the time.
        last, self._last = self._last, (phase, event.get("pair"), event.get("shape"), event.get("holder"))
        if last != self._last:
            # soft_wrap: a log has no width.
            self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
