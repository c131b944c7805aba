"""What verbs share: how their Typer app is made, the two output streams, and the `--json` option."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["JsonOption", "narration", "results", "verb_app", "write_json"]

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON document on stdout; narration goes to stderr.")
]
"""The annotation of every verb's `as_json` parameter: `as_json: JsonOption = False`."""


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


def write_json(document: Any) -> None:
    """Prints the one document of a `--json` run on stdout."""
    import orjson

    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    data = orjson.dumps(document, option=option)
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(data.decode())
    else:
        # As bytes: JSON is UTF-8, whatever the terminal's own encoding is.
        sys.stdout.flush()
        stream.write(data)
    sys.stdout.flush()
