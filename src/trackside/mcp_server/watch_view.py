"""What a `trackside watch` says of its suite, and whether it is still there to say it."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import orjson

from trackside.mcp_server.answers import Finding, Findings
from trackside.mcp_server.reply import Detail
from trackside.mcp_server.scope import Scope
from trackside.records.errors import TracksideError
from trackside.store.files import open_unlinked
from trackside.store.runs import process_mark

__all__ = ["WATCH", "watch_findings", "watch_status"]

WATCH: Final = "watch"
"""In the place of a run's id."""

# A suite of hundreds of workloads needs less.
_MOST_BYTES: Final = 8 << 20
_WELL: Final = ("right", "holds")


def watch_status(scope: Scope) -> dict[str, Any]:
    """The status document; its `state` is `gone` where its process is.

    Raises:
        TracksideError: kind `not-found` where none ever ran, `store` where it is none of ours.
    """
    from trackside.suite.watch_status import SCHEMA, STATUS_FILE

    path = scope.store.root / STATUS_FILE
    try:
        # As with a record: a folder that came with a download may be a link.
        if not path.resolve().is_relative_to(scope.store.root.resolve()):
            raise TracksideError("store", "the watch's status is a link out of the store", "remove it")
        with open_unlinked(path) as file:
            found = orjson.loads(file.read(_MOST_BYTES))
    except FileNotFoundError as error:
        raise TracksideError(
            "not-found", "no watch has run here", "ask the person to start `trackside watch`"
        ) from error
    except (OSError, ValueError) as error:
        raise TracksideError(
            "store", "the watch's status cannot be read", "start `trackside watch` again"
        ) from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise TracksideError("store", "watch/status.json holds no status of a watch", "remove it")
    pid = found.get("pid")
    there = isinstance(pid, int) and process_mark(pid) == found.get("process")
    if found.get("state") != "ended" and not there:
        found |= {
            "state": "gone",
            "note": "its process was killed: what it says is old, and nobody looks at changes any more",
        }
    return found


def watch_findings(scope: Scope, detail: Detail) -> Findings:
    """The workloads that are not well, with the sentence that the screen shows; in full all of them."""
    status = watch_status(scope)
    items = sorted(status["items"], key=lambda item: item["state"] in _WELL)
    rows = []
    for item in items:
        if item["state"] in _WELL and detail == "concise":
            continue
        timing, correctness = item.get("timing") or {}, item.get("correctness") or {}
        # Of other files than there are now, they would be said of the wrong ones.
        told = [one for one in (timing, correctness) if one and one.get("digest") == item["digest"]]
        reasons = list(dict.fromkeys(reason for one in told for reason in one.get("reasons") or ()))
        run = [f"run {timing['run_id']}"] if timing in told and timing.get("run_id") else []
        rows.append(
            Finding(
                id=item["name"],
                status=item["state"],
                file=scope.shown(scope.folder / item["candidate"]),
                evidence=[item["line"], *(reasons if detail == "full" else ()), *run],
            )
        )
    counts = ", ".join(f"{count} {state}" for state, count in Counter(i["state"] for i in items).items())
    said = {
        "watching": "watching",
        "ended": f"ended at {status['updated']}: what follows is old",
        "gone": f"killed after {status['updated']}: what follows is old",
    }
    return Findings(
        verdict=f"{said.get(status['state'], 'unknown')}; {counts}",
        reasons=[status["error"]] if status.get("error") else [],
        rows=rows,
        links=["watch://status"],
        next="" if status["state"] == "watching" else "ask the person to start `trackside watch`",
    ).of(len(rows))
