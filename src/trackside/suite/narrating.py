"""What the suite's own children share: one document on stdout, a line per phase on stderr."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import orjson

from trackside.records.errors import TracksideError, encodable, printable
from trackside.store.lock_holders import holder_named

__all__ = ["narrate"]


def narrate(work: Callable[[Callable[[dict[str, Any]], None]], dict[str, Any]]) -> int:
    """Do the work, print what it gives or the error that ended it, and return the exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        document = work(_tell)
        code = 0
    except TracksideError as error:
        document, code = error.as_json(), error.exit_code
    except KeyboardInterrupt:
        document, code = {"error": {"kind": "interrupted", "message": "interrupted", "remedy": ""}}, 130
    sys.stdout.buffer.write(orjson.dumps(encodable(document)))
    sys.stdout.flush()
    return code


def _terminate(number: int, frame: object) -> None:
    """As a verb does: SIGTERM ends it as Ctrl-C would, also where a shell had that ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if callable(signal.getsignal(signal.SIGINT)):
        signal.raise_signal(signal.SIGINT)
    raise KeyboardInterrupt


def _tell(event: dict[str, Any]) -> None:
    phase = event["phase"]
    text = phase
    if phase == "waiting":
        text = f"waiting: {holder_named(event['holder'])} measures on this device"
    elif phase == "pairs":
        text = f"timing: pair {event['pair']} of {event['pairs']}, ratio so far {event['ratio']:.4g}"
    elif phase == "shape" and event["count"] > 1:
        text = f"shape {event['number']} of {event['count']}: {event['shape']}"
    print(printable(text), file=sys.stderr, flush=True)
