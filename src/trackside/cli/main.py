"""`trackside`: finds the verb, runs it, and turns every way it can end into output and an exit code.

To add a verb NAME: put a line into `VERBS` and write `cli/NAME.py` with `app = verb_app()` and one or more
functions under `@app.command()`. A function returns its exit code (None means 0) and raises TracksideError
for what it cannot do. The module is imported only when the verb is called; what is slow to import (torch,
pydantic, numpy) belongs inside the function, so that the verb's own help is quick.
"""

import errno
import importlib
import json
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from trackside import __version__
from trackside.cli.terminal import OutputLost, standard_streams
from trackside.records.errors import TracksideError, printable

__all__ = ["VERBS", "main"]

VERBS: Final[dict[str, str]] = {
    "compare": "Is the candidate faster than the baseline, and still right?",
    "verify": "Does a stored certificate still hold? What changed since?",
    "selfcheck": "How often is compare itself wrong, on this machine?",
    "profile": "Where does a program's time go, line by line, and what should change?",
    "report": "The page of a profile: write it again, open it.",
    "machine": "What is this machine?",
    "ceilings": "What does this machine really do?",
    "doctor": "What is wrong with this machine, and with a script?",
    "gpus": "What do accelerators offer, and what does that allow?",
    "runs": "Past runs: list, show, diff, remove, export and import.",
    "check": "Does everything that a suite claims still hold? For CI.",
    "watch": "Evaluate a suite again whenever its files change.",
    "handbook": "The checklist, and search in it and in your own documents.",
    "mcp": "The server for coding assistants.",
}
"""Verb → its line in `trackside --help`, in the order shown. Here, so that help imports no verb."""

# What a shell reports for a program that SIGINT or SIGPIPE ended.
_EXIT_INTERRUPTED: Final = 130
_EXIT_BROKEN_PIPE: Final = 141
_EXIT_FAILURE: Final = 2

# Older releases of Typer use the click package, newer ones a copy of their own; a name that both export leads
# to the class that stands for every complaint about the command line.
_ClickException: Final[type[Exception]] = next(
    ancestor for ancestor in typer.BadParameter.__mro__ if ancestor.__name__ == "ClickException"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; nothing but a signal makes it do otherwise."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with standard_streams():
        if sys.stdout is None:
            return _report_no_output("stdout is closed")
        try:
            code = _end(arguments)
            # Here and not at exit, where a failure would make the code 120.
            sys.stdout.flush()
        except OutputLost as lost:
            return _EXIT_BROKEN_PIPE if lost.errno == errno.EPIPE else _report_no_output(str(lost))
    return code


def _end(arguments: list[str]) -> int:
    """The exit code, once everything that there is to say has been written."""
    signals: list[signal.Signals] = []
    try:
        with _terminated_as_interrupted(signals):
            code = _run(arguments)
        sys.stdout.flush()
    except TracksideError as error:
        return _report(error, arguments)
    except (KeyboardInterrupt, typer.Abort):
        return _report_interrupt(signals[0] if signals else signal.SIGINT, arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else _EXIT_FAILURE
    except OutputLost:
        raise
    except Exception as error:
        # Python's own exit code for an uncaught exception is 1, which here would read as a failed claim.
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        remedy = "this is a defect of Trackside: please report it with the traceback above"
        return _report(TracksideError("internal", message, remedy), arguments)
    return code


@contextmanager
def _terminated_as_interrupted(signals: list[signal.Signals]) -> Iterator[None]:
    """Let SIGTERM end a verb as Ctrl-C does: what it started ends too, and what is done is kept.

    Args:
        signals: gets SIGTERM when it arrives, since a KeyboardInterrupt does not say what made it.
    """
    # Who had it ignored, as some supervisors do, wants it ignored by what we start too.
    ignored = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return

    def once(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signals.append(signal.SIGTERM)
        # What a verb does about Ctrl-C it does here too; where a shell had SIGINT ignored it does nothing.
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, once)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(arguments: list[str]) -> int:
    command, name, rest = _find(arguments)
    _leave_absent_options_alone(command)
    # Not command.main(): what it does about errors and interrupts differs between releases of Typer.
    try:
        with command.make_context(name, rest) as context:
            result = command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except _ClickException as error:
        raise _as_trackside_error(error) from error
    return result if isinstance(result, int) else 0


def _find(arguments: list[str]) -> tuple[Any, str, list[str]]:
    """The command to run, its name in messages, and its own arguments.

    A verb is taken from the first argument directly rather than by the root group: recent releases of Typer
    import pydantic to parse even the absence of a root option, and a verb's help should be quick too.
    """
    if arguments and arguments[0] in VERBS:
        module = importlib.import_module(f"trackside.cli.{arguments[0]}")
        return get_command(module.app), f"trackside {arguments[0]}", arguments[1:]
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.callback(invoke_without_command=True)(_root)
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    for name, line in VERBS.items():
        root.add_command(TyperCommand(name, short_help=line))
    return root, "trackside", list(arguments)


def _leave_absent_options_alone(command: Any) -> None:
    """Spares converting what was not given.

    Recent releases of Typer import pydantic for that, and build a validator for each option to turn None into
    None: a hundred of the two hundred milliseconds that `runs list` took.
    """
    for one in (command, *getattr(command, "commands", {}).values()):
        one.get_params = partial(_parameters, one.get_params)


def _parameters(found: Callable[[Any], list[Any]], context: Any) -> list[Any]:
    """All of them, with --help, which belongs to none of the lists that a command has."""
    parameters = found(context)
    for parameter in parameters:
        if not isinstance(parameter.process_value, partial):
            parameter.process_value = partial(_value, parameter, parameter.process_value)
    return parameters


def _value(parameter: Any, convert: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    many = parameter.nargs != 1 or getattr(parameter, "multiple", False)
    if value is not None or many or parameter.required:
        return convert(context, value)
    return None if parameter.callback is None else parameter.callback(context, parameter, None)


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Measure the machine, find the time, prove the change.

    Every verb takes --json. Exit codes: 0 it holds, 1 a finding or a failed claim, 2 wrong use or tool
    failure, 3 not possible or not comparable here, 4 inconclusive, 124 time-out.
    """
    if version:
        print(f"trackside {__version__}")
        raise typer.Exit(0)
    if context.invoked_subcommand is not None:
        raise TracksideError("usage", "the verb must come first", "see `trackside --help`")
    print(context.get_help(), file=sys.stderr)
    raise typer.Exit(2)


def _as_trackside_error(error: Any) -> TracksideError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "trackside"
    return TracksideError("usage", error.format_message(), f"see `{command} --help`")


def _report(error: TracksideError, arguments: list[str]) -> int:
    if _wants_json(arguments):
        _print_document(error.as_json())
    else:
        print(printable(f"error: {error.message}\nremedy: {error.remedy}"), file=sys.stderr)
    return error.exit_code


def _report_interrupt(number: signal.Signals, arguments: list[str]) -> int:
    if _wants_json(arguments):
        message = f"found {number.name} before the end"
        remedy = "run it again; `trackside runs list` shows what was kept"
        _print_document(TracksideError("interrupted", message, remedy).as_json())
    else:
        print("interrupted", file=sys.stderr)
    return _EXIT_INTERRUPTED


def _report_no_output(why: str) -> int:
    # On stderr with --json too: there is nowhere else.
    remedy = "free some space, or send stdout elsewhere; to see the exit code alone: > /dev/null"
    print(printable(f"error: cannot write the results: {why}\nremedy: {remedy}"), file=sys.stderr)
    return _EXIT_FAILURE


def _wants_json(arguments: list[str]) -> bool:
    # Looked for in the raw arguments, since they may be what is wrong. What follows `--` is not ours, nor
    # what follows the program's name in `profile`.
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if arguments[:1] == ["profile"]:
        profile = importlib.import_module("trackside.cli.profile")
        with_value = get_command(profile.app).with_value()  # type: ignore[attr-defined]
        own = arguments[1:][: profile.own_arguments(arguments[1:], with_value)]
    return "--json" in own


def _print_document(document: dict[str, dict[str, str]]) -> None:
    # A message may name a path, and a path need not be text.
    error = {name: printable(text) for name, text in document["error"].items()}
    print(json.dumps({"error": error}, indent=2))
