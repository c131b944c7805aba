"""`trackside profile`: where does a program's time go, line by line, and what should change?"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from trackside.cli.terminal import JsonOption, narration, results, verb_app, write_json
from trackside.records.durations import duration
from trackside.records.errors import TracksideError, printable

if TYPE_CHECKING:
    from rich.console import Console

    from trackside.profiling.captured import Captured
    from trackside.profiling.counters import CountersRead
    from trackside.profiling.launch import Ended
    from trackside.profiling.program import Program
    from trackside.profiling.rank_times import RanksSeen
    from trackside.profiling.ranks import Meeting
    from trackside.profiling.record import RunFacts
    from trackside.profiling.windows import Limits
    from trackside.records.profile import ProfileRecord
    from trackside.store.runs import Run, RunStore

__all__ = ["app", "own_arguments"]

app = verb_app()

_EXIT_FOUND, _EXIT_NOT_POSSIBLE, _EXIT_TIMEOUT = 1, 3, 124
_DONE = {"A": "timed", "L": "with lines", "T": "traced", "B": "with both", "K": "keeping memory"}
_STDERR = 2


def own_arguments(arguments: Sequence[str], with_value: Sequence[str]) -> int:
    """How many of the words are ours: those before the script's name, and `-m MODULE`.

    Args:
        arguments: what follows `profile`.
        with_value: options of ours that take the next word.
    """
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "--" or not word.startswith("-") or word == "-":
            return at
        if word.startswith("-m"):
            return min(len(arguments), at + (2 if word == "-m" else 1))
        at += 2 if word in with_value else 1
    return len(arguments)


class _Profile(TyperCommand):
    """Leaves to the program what is the program's: options behind its name are not ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # What ends our own options is put where they end.
        own = own_arguments(args, self.with_value())
        rest = args[own:]
        return super().parse_args(ctx, [*args[:own], *([] if rest[:1] == ["--"] else ["--"]), *rest])

    def with_value(self) -> list[str]:
        options = [one for one in self.params if one.param_type_name == "option"]
        return [name for one in options if not getattr(one, "is_flag", False) for name in one.opts]


@app.command(cls=_Profile)
def profile(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="SCRIPT [ARGS]...", help="The program, as behind `python`.")
    ] = None,
    module: Annotated[
        str | None, typer.Option("-m", metavar="MODULE", help="Run a module; what follows is the program's.")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(min=0, help="Steps before anything is timed (default: until they settle).")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of each window (default: as many as figures need).")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Length of each window, also where there are no steps.")
    ] = None,
    max_trace: Annotated[
        int | None,
        typer.Option(metavar="MB", min=1, help="Largest trace (default 500): windows end early for it."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="End the program after so many seconds; the exit code is then 124.")
    ] = None,
    counters: Annotated[
        bool, typer.Option("--counters", help="Then run it once more under ncu, for the GPU's own counters.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Read a trace that torch.profiler wrote, and run nothing.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write the report here: a file .html, or a folder.")
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE", help="Exit with 1 if a change would gain this share of a step at least: 10%."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Where does a program's time go, line by line, and what should change?

    Runs `python SCRIPT ARGS` as it is and watches some of its steps: untraced, traced, and line by line. A
    step ends where an optimizer's does; without one it is what repeats. What we say goes to stderr; stdout is
    the program's, or with --json the record's alone.

    The exit code is the program's own. With --fail-on a program that ended well leaves 1 where a finding's
    gain is that large even at its low end, and 3 where no step was seen that rules could look at.
    """
    _check(words, module, seconds, timeout, trace)
    limit = _share(fail_on) if fail_on is not None else None
    if trace is not None:
        return _existing(trace, out, limit, as_json)
    from trackside.profiling.devices import take_devices
    from trackside.profiling.program import Program
    from trackside.profiling.rank_run import gathered
    from trackside.profiling.ranks import Meeting, rank_here
    from trackside.profiling.session import run_program
    from trackside.profiling.windows import MAX_TRACE, Limits
    from trackside.store.runs import RunStore

    target, arguments = (
        (module, words or []) if module is not None else ((words or [""])[0], (words or [])[1:])
    )
    program = Program(target, module is not None, tuple(arguments))
    program.command()  # what is wrong with it is said before a run is made
    if not (program.module or target == "-" or os.path.exists(target)):
        raise TracksideError("not-found", f"there is no file {target}", "trackside profile SCRIPT [ARGS]")
    store = RunStore()
    rank = rank_here(os.environ)
    most = MAX_TRACE if max_trace is None else max_trace * 1_000_000
    limits = Limits(warmup, steps, seconds, rank is not None, most)
    stdout = _STDERR if as_json else None
    if rank is not None and counters:
        raise TracksideError(
            "unsupported",
            f"--counters runs the program again, and one of {rank.world} ranks cannot do so alone",
            "leave it out, or profile the program without torchrun",
        )
    meeting = Meeting(store.root, rank) if rank is not None else None
    if meeting is not None and meeting.rank.number > 0:
        return _other_rank(program, limits, meeting, store, stdout, timeout)
    live = _Live()
    with contextlib.ExitStack() as devices, _finished_first(live, rank is not None):
        if meeting is None:
            # Before there is a run: who gives up waiting leaves none.
            take_devices(devices, live.wait)
        run = store.new_run("profile")
        folder = run.folder / "capture"
        folder.mkdir()
        if meeting is not None:
            # The other ranks look for this one at once, and begin when it does.
            meeting.join(store)
            take_devices(devices, live.wait)
            meeting.begin()
        seen = run_program(
            program,
            limits,
            folder,
            root=store.root,
            options={
                "warmup": warmup,
                "steps": steps,
                "seconds": seconds,
                "max_trace": max_trace,
                "timeout": timeout,
                "counters": counters or None,
            },
            run_id=run.id,
            on_message=live.heard,
            on_ended=live.ended,
            stdout=stdout,
            seconds=timeout,
            rank_clock=meeting.rank_clock if meeting is not None else None,
        )
        ranks = None
        if meeting is not None:
            seen, ranks = gathered(meeting, seen, live.asked_to_end, live.say)
            meeting.close()
        counted = _counted(seen.captured, seen.run, program, run, live) if counters else None
        record = _examined(seen.captured, seen.run, ranks, counted)
        # The rules have timed their fixes. Who reads what we print, in a pager, keeps nobody waiting.
        devices.close()
        _keep(record, store, run, live.console, seen.captured)
        _show(record, run, out, as_json)
        gate = _gate(record, limit, live.say) if limit is not None else 0
    return _end(seen.ended) or gate


def _share(text: str) -> float:
    """A share of a step as `10%` or `0.1`."""
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = float("nan")
    if not 0 < share < 1:
        raise TracksideError("usage", f"found --fail-on {text}", "needed: a share of the step, as 10% or 0.1")
    return share


def _gate(record: ProfileRecord, limit: float, say: Callable[[str], None]) -> int:
    """The exit code that findings ask for, with a word on why."""
    if record.step_ms is None or record.breakdown_ms is None:
        say(f"--fail-on {limit:.0%}: no step was seen, so nothing can be said; see the limits above")
        return _EXIT_NOT_POSSIBLE
    sure = [one for one in record.findings if one.gain.low >= limit]
    for one in sure:
        where = f"{one.file}:{one.line}: " if one.file is not None else ""
        say(f"--fail-on {limit:.0%}: {where}{one.title}, at least {one.gain.low:.0%} of a step")
    return _EXIT_FOUND if sure else 0


def _end(ended: Ended) -> int:
    """End as the program did."""
    from trackside.profiling.launch import end_as

    return _EXIT_TIMEOUT if ended.timed_out else end_as(ended)


def _other_rank(
    program: Program,
    limits: Limits,
    meeting: Meeting,
    store: RunStore,
    stdout: int | None,
    timeout: float | None,
) -> int:
    """A rank that is not the first: its program runs as it would, and the first rank tells the story."""
    from trackside.profiling.rank_run import run_other_rank

    live = _Live(silent=True)
    with _finished_first(live, True):
        ended, leave = run_other_rank(
            program, limits, meeting, store, on_begun=live.begin, stdout=stdout, seconds=timeout
        )
        live.over = True
        told = None
        try:
            if not leave() and meeting.rank.speaks_for_machine:
                told = "what this machine's ranks saw is in no report: rank 0 was not here, or did not wait"
        except (TracksideError, OSError, ValueError) as error:
            why = error.message if isinstance(error, TracksideError) else str(error)
            told = f"what rank {meeting.rank.number} saw could not be left: {why}"
        if told is not None:
            live.say(told)
    return _end(ended)


def _examined(
    captured: Captured, run: RunFacts, ranks: RanksSeen | None = None, counted: CountersRead | None = None
) -> ProfileRecord:
    """The record, with what the rules find."""
    from trackside.diagnose.examine import examine
    from trackside.profiling.record import build_record

    found = examine(captured, run, ranks, counted.by_name if counted is not None else None)
    record = build_record(captured, run, found.findings, found.together)
    trust = [*record.trust, *found.failed]
    if counted is None:
        return record.model_copy(update={"trust": trust})
    kernels = [one.model_copy(update={"counters": counted.kernels.get(one.id, {})}) for one in record.kernels]
    return record.model_copy(update={"kernels": kernels, "trust": [*trust, *counted.missing]})


def _counted(captured: Captured, facts: RunFacts, program: Program, run: Run, live: _Live) -> CountersRead:
    """What the hardware counts in the kernels that matter: which those are, the record tells."""
    from trackside.profiling.counters import choose_kernels, collect_counters
    from trackside.profiling.record import build_record

    record = build_record(captured, facts)
    kernels = [] if record.device == "cpu" else choose_kernels(record.kernels)
    return collect_counters(program, kernels, run.folder, say=live.say)


def _check(
    words: list[str] | None,
    module: str | None,
    seconds: float | None,
    timeout: float | None,
    trace: Path | None,
) -> None:
    if trace is not None and (words or module):
        raise TracksideError("usage", "found --trace and a program", "give one of the two")
    if trace is None and not words and module is None:
        raise TracksideError("usage", "found no program", "trackside profile SCRIPT [ARGS]")
    for name, value in (("--seconds", seconds), ("--timeout", timeout)):
        # Written so that nan fails too.
        if value is not None and not 0 < value < 1e9:
            raise TracksideError("usage", f"found {name} {value:g}", "needed: a positive number of seconds")


def _existing(trace: Path, out: Path | None, limit: float | None, as_json: bool) -> int:
    from trackside.profiling.existing_trace import seen_trace
    from trackside.store.runs import RunStore

    store = RunStore()
    # Before there is a run: a file that is no trace makes none.
    captured, facts = seen_trace(trace)
    run = store.new_run("profile")
    record = _examined(captured, facts).model_copy(update={"run_id": run.id})
    _keep(record, store, run, narration())
    _show(record, run, out, as_json)
    return _gate(record, limit, _Live().say) if limit is not None else 0


def _keep(
    record: ProfileRecord, store: RunStore, run: Run, console: Console, captured: Captured | None = None
) -> None:
    """Record, page and trace in the run's folder. Where that fails the result is still shown."""
    from trackside.report.profile_run import keep_profile

    try:
        keep_profile(record.to_dict(), store, run, captured)
    except (TracksideError, OSError, ValueError) as error:
        why = error.message if isinstance(error, TracksideError) else str(error)
        console.print(printable(f"trackside: the record could not be kept: {why}"), markup=False)


def _show(record: ProfileRecord, run: Run, out: Path | None, as_json: bool) -> None:
    document = record.to_dict()
    written = _write_out(document, run, out) if out is not None else run.folder / "report.html"
    if as_json:
        write_json(document)
        return
    from rich.text import Text

    from trackside.report.profile_text import render

    # A trace's result is ours alone; a program's stdout is not.
    console = results() if "trace" in record.options else narration()
    render(document, console)
    console.print()
    if written.exists():
        near = os.path.relpath(written)
        where = near if len(near) < len(str(written)) else str(written)
        console.print(Text.assemble(("  report ", "bold"), printable(where)), soft_wrap=True)
    if (run.folder / "record.json").is_file():
        console.print(Text.assemble(("  next: ", "bold"), printable(f"trackside report {run.id} --open")))
    proof = next((one.prove for one in record.findings if one.prove), None)
    if proof is not None:
        console.print(Text.assemble(("  prove a change: ", "bold"), printable(proof)), soft_wrap=True)


def _write_out(document: dict[str, Any], run: Run, out: Path) -> Path:
    from trackside.report.profile_html import write_report
    from trackside.report.profile_run import TRACE
    from trackside.store.files import store_errors
    from trackside.store.files import write_json as write_file

    with store_errors(out, "write", "give another --out"):
        if out.suffix.lower() in (".html", ".htm"):
            write_report(document, out)
            return out
        out.mkdir(parents=True, exist_ok=True)
        write_report(document, out / "report.html")
        write_file(out / "record.json", document)
        if (run.folder / TRACE).exists():
            shutil.copyfile(run.folder / TRACE, out / TRACE)
        return out / "report.html"


@contextlib.contextmanager
def _finished_first(live: _Live, is_rank: bool = False) -> Iterator[None]:
    """Once the program is over, what was captured is kept before Ctrl-C ends us; a second one ends us.

    For one of several ranks so does SIGTERM: torchrun sends it to all when one has failed.
    """
    before = {
        number: handler
        for number in (signal.SIGINT, *([signal.SIGTERM] if is_rank else []))
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }
    came: list[int] = []

    def once(number: int, frame: object) -> None:
        if number == signal.SIGTERM and (came or not live.begun):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif number == signal.SIGINT and (came or not live.over):
            raise KeyboardInterrupt
        came.append(number)
        live.asked_s = time.monotonic()
        if not live.silent:
            # Not by way of the console: it may be what was interrupted.
            os.write(_STDERR, b"trackside: keeping what was seen; again to give up\n")

    for number in before:
        signal.signal(number, once)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Live:
    """A line on stderr for each window that is over; the program writes there too."""

    def __init__(self, silent: bool = False) -> None:
        self.console = narration()
        self.silent = silent
        self.begun = False
        """The program is under way, or was."""
        self.over = False
        """The program has ended."""
        self.asked_s: float | None = None
        """When a signal asked for an end."""

    def begin(self) -> None:
        self.begun = True

    def asked_to_end(self) -> float | None:
        return self.asked_s

    def wait(self, holder: Mapping[str, Any]) -> None:
        from trackside.store.lock_holders import holder_named

        self.say(f"waiting: {holder_named(holder)} measures on this device")

    def heard(self, message: dict[str, Any]) -> None:
        self.begin()
        kind = message["kind"]
        if kind == "trouble":
            self.say(f"the capture ended early: {message.get('text')}")
        elif kind == "steps":
            self.say("an optimizer steps: from here on windows go by its steps")
        elif kind == "window" and message.get("name") in _DONE:
            steps, took = message.get("steps"), float(message.get("seconds") or 0.0)
            counted = "" if message.get("by_time") else f"{steps} steps in "
            self.say(f"{_DONE[message['name']]}: {counted}{duration(1e9 * took)}")

    def ended(self, ended: Ended) -> None:
        self.begun = self.over = True
        how = f"signal {ended.signal}" if ended.signal is not None else f"exit code {ended.exit_code}"
        self.say(f"ended with {how} after {duration(1e9 * ended.seconds)}; reading what was seen")

    def say(self, text: str) -> None:
        self.console.print(printable(f"trackside: {text}"), markup=False, style="dim", soft_wrap=True)
