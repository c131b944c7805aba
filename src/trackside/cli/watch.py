"""`trackside watch`: a suite evaluated again whenever its files change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackside.cli.terminal import JsonOption, results, verb_app, write_json
from trackside.records.errors import TracksideError, printable

if TYPE_CHECKING:
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
        print(printable(f"{event['time'][11:19]} {event['event']}: {event['line']}"), flush=True)


class _Live(_Silent):
    def __init__(self) -> None:
        from rich.live import Live

        self._live = Live(console=results(), auto_refresh=False)

    def update(self, event: dict[str, Any], status: Status) -> None:
        from trackside.report.watch_text import screen

        self._live.update(screen(status.to_dict()), refresh=True)

    def __enter__(self) -> _Silent:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()


def _screen(as_json: bool, events: bool) -> _Silent:
    if as_json:
        return _Silent()
    if events:
        return _Events()
    return _Live() if results().is_terminal else _Lines()
