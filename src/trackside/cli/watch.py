"""`trackside watch`: a suite evaluated again whenever its files change."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackside.cli.terminal import JsonOption, results, verb_app, write_json
from trackside.records.errors import TracksideError, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from trackside.suite.watch_status import Status

__all__ = ["app"]

app = verb_app()

_TIMING = ("quiet", "always", "never")


@app.command()
def watch(
    suite: Annotated[
        Path | None, typer.Option(help="The suite file (default: trackside.toml here or in a folder above).")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this workload; may be repeated.")] = None,
    timing: Annotated[
        str, typer.Option(help="When to time what is right: quiet (no other work), always, or never.")
    ] = "quiet",
    once: Annotated[bool, typer.Option("--once", help="Evaluate what is stale, and end.")] = False,
    patience: Annotated[
        float, typer.Option(help="With --once: seconds to wait for a quiet machine.", min=0)
    ] = 60.0,
    events: Annotated[
        bool, typer.Option("--events", help="One JSON document per event and line on stdout.")
    ] = False,
    polling: Annotated[
        bool, typer.Option("--polling", help="Look at files by the clock, not by the kernel's word.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Keep evaluating trackside.toml while files change: right at once, faster when the machine is quiet.

    The status is in watch/status.json below the store, for whoever else wants to know. Ctrl-C ends it.

    Exit codes with --once: as for `check`; 4 also where something is right but could not be timed.
    """
    if timing not in _TIMING:
        raise TracksideError("usage", f"found --timing {timing}", f"needed: {', '.join(_TIMING)}")
    if as_json and (not once or events):
        found = "--events" if events else "no --once"
        raise TracksideError(
            "usage", f"found --json with {found}", "--once --json for one document, --events for a stream"
        )
    from trackside.suite.suite_file import find_suite
    from trackside.suite.watch import WatchOptions, run_watch

    options = WatchOptions(
        suite=suite if suite is not None else find_suite(),
        only=tuple(only or ()),
        timing=timing,  # type: ignore[arg-type]
        once=once,
        patience=patience,
        polling=polling,
    )
    with _screen(as_json, events) as shown:
        document, code = run_watch(options, shown.update)
    if as_json:
        write_json(document)
    return code if once else 0


class _Silent:
    def update(self, event: dict[str, Any], status: Status) -> None:
        """With --json there is one document at the end."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class _Events(_Silent):
    def update(self, event: dict[str, Any], status: Status) -> None:
        import json

        item = status.items.get(event["name"] or "")
        print(json.dumps(event | {"item": item.to_dict() if item else None}), flush=True)


class _Lines(_Silent):
    def update(self, event: dict[str, Any], status: Status) -> None:
        from trackside.report.watch_text import clock_time

        print(printable(f"{clock_time(event['time'])} {event['event']}: {event['line']}"), flush=True)


class _Live(_Silent):
    """The whole terminal, as a pager has it, so that a new size or a `^C` leaves no old status behind.

    The last status stays on the ordinary screen at the end.
    """

    def __init__(self) -> None:
        self._console = results()
        self._live: Live | None = None
        self._status: dict[str, Any] = {}
        self._is_drawing = self._is_resized = False
        self._before: Any = None

    def update(self, event: dict[str, Any], status: Status) -> None:
        self._status = status.to_dict()
        self._draw()

    def __exit__(self, *exc: object) -> None:
        if self._live is None:
            return
        signal.signal(signal.SIGWINCH, self._before)
        self._live.stop()
        self._console.print(self._frame())

    def _frame(self, height: int | None = None) -> RenderableType:
        from trackside.report.watch_text import screen

        return screen(self._status, self._console, height)

    def _draw(self) -> None:
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, screen=True)
            self._live.start()
            self._before = signal.signal(signal.SIGWINCH, self._resized)
        self._is_resized = True
        # A new size in the middle of it, or just behind: once more.
        while self._is_resized:
            self._is_drawing, self._is_resized = True, False
            try:
                self._live.update(self._frame(self._console.height), refresh=True)
            finally:
                self._is_drawing = False

    def _resized(self, number: int, frame: object) -> None:
        self._is_resized = True
        if not self._is_drawing:
            self._draw()


def _screen(as_json: bool, events: bool) -> _Silent:
    if as_json:
        return _Silent()
    if events:
        return _Events()
    console = results()
    return _Live() if console.is_terminal and not console.is_dumb_terminal else _Lines()
