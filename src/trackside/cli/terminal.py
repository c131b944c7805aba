"""What verbs share: how their Typer app is made, the two output streams, and the `--json` option."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from trackside.records.errors import encodable, printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import Console

    from trackside.store.runs import RunStore

__all__ = [
    "JsonOption",
    "OutputLost",
    "narration",
    "results",
    "say_remarks",
    "standard_streams",
    "verb_app",
    "write_json",
]

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON document on stdout; narration goes to stderr.")
]
"""The annotation of every verb's `as_json` parameter: `as_json: JsonOption = False`."""


class OutputLost(Exception):
    """What is written to stdout goes nowhere: the reader has hung up, or the disk is full.

    No OSError, so that it cannot be taken for the failure of some other file, and no BrokenPipeError, which
    rich would turn into exit code 1.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.errno = error.errno


class _Remarks(io.BufferedWriter):
    """Stderr's buffer. Remarks that nobody can get are dropped: they are no reason to end the work.

    The buffer and not the file below it, where an interrupt between a write and the count that it returns
    would have the same text written twice.
    """

    _lost = False

    def write(self, data: "ReadableBuffer", /) -> int:
        if not self._lost:
            try:
                return super().write(data)
            except OSError as error:
                self._fail(error)
        return memoryview(data).nbytes

    def flush(self) -> None:
        if not self._lost:
            try:
                super().flush()
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._lost = True


class _Results(_Remarks):
    """Stdout's buffer. It fails once; what comes later, as the rest of it at exit, is dropped."""

    def _fail(self, error: OSError) -> None:
        super()._fail(error)
        raise OutputLost(error) from error


@contextmanager
def standard_streams() -> Iterator[None]:
    """Let stdout and stderr take any text, and tell their failures from those of other files.

    Streams that a caller has put in their place stay as they are.
    """
    with ExitStack() as stack:
        if sys.stderr is None:
            # Closed (`2>&-`): print would take None for stdout.
            stack.callback(setattr, sys, "stderr", None)
            sys.stderr = stack.enter_context(open(os.devnull, "w"))
        for name, buffer in (("stdout", _Results), ("stderr", _Remarks)):
            stream = getattr(sys, name)
            if stream is not None and stream is getattr(sys, f"__{name}__"):
                stack.callback(setattr, sys, name, stream)
                setattr(sys, name, _opened_again(stream, buffer))
        yield


def _opened_again(stream: TextIO, buffer: type[_Remarks]) -> TextIO:
    stream.flush()
    return io.TextIOWrapper(
        buffer(io.FileIO(stream.fileno(), "wb", closefd=False)),
        stream.encoding,
        # Not "replace": a question mark is one of doctor's signs, and a check mark would turn into it.
        "backslashreplace",
        # Stderr is written through to a buffer that is one here: without this, what a verb says last is lost
        # where something still holds the stream at exit.
        line_buffering=bool(stream.line_buffering or getattr(stream, "write_through", False)),
        write_through=getattr(stream, "write_through", False),
    )


def verb_app(help: str | None = None) -> typer.Typer:
    """The Typer app that a verb module exposes as `app`.

    Plain help rather than rich's: it starts faster, and it reads the same in a log and to an assistant.
    """
    return typer.Typer(help=help, add_completion=False, rich_markup_mode=None)


def results() -> "Console":
    """The console for results, on stdout. Not for `--json`: there stdout belongs to `write_json`."""
    from rich.console import Console

    return Console(highlight=False)


def narration() -> "Console":
    """The console for progress and remarks, on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say_remarks(store: "RunStore") -> None:
    """Says on stderr, once, what the store has to say of itself."""
    for remark in store.take_remarks():
        print(printable(f"remark: {remark}"), file=sys.stderr)


def write_json(document: Any) -> None:
    """Prints the one document of a `--json` run on stdout."""
    import orjson

    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    try:
        data = orjson.dumps(document, option=option)
    except TypeError:
        # A path or a name in it is no text; what else JSON cannot hold fails again.
        data = orjson.dumps(encodable(document), option=option)
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(data.decode())
    else:
        # As bytes: JSON is UTF-8, whatever the terminal's own encoding is.
        sys.stdout.flush()
        stream.write(data)
    sys.stdout.flush()
