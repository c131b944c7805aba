"""Whose fault it is when a process fails or raises: it rejects a candidate, and otherwise is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from trackside.comparison.arms import CANDIDATE
from trackside.comparison.checks import Ledger
from trackside.records.errors import ErrorKind, TracksideError
from trackside.workload.fleet import ProcessFailed

__all__ = ["arm_failed", "arm_raised", "reference_failed", "reference_raised"]


def reference_failed(op: str, error: ProcessFailed) -> NoReturn:
    raise TracksideError(
        {"timeout": "timeout", "memory": "device"}.get(error.how, "workload"),  # type: ignore[arg-type]
        f"the reference process, which runs the baseline in float64, {error.detail} while asked to "
        f"`{op}`; its output ends: {error.log[-500:]}",
        "run the baseline file by hand; look for what exhausts memory, hangs or crashes in "
        "`inputs` or `reference`; or try smaller sizes",
    ) from error


def reference_raised(op: str, raised: dict[str, Any]) -> NoReturn:
    where = f" at {raised['where']}" if raised["where"] else ""
    kind: ErrorKind = "device" if raised["memory"] else raised.get("kind") or "workload"
    raise TracksideError(
        kind,
        raised["message"]
        if kind == "device" and not raised["memory"]
        else f"the baseline's file raised {raised['type']}{where} in `{op}`: {raised['message']}"
        if raised["type"]
        else f"the baseline's file could not be used: {raised['message']}",
        "smaller sizes, or a device with more memory"
        if raised["memory"]
        else "repair the baseline file; it is the authority on inputs and reference",
    )


def arm_failed(ledger: Ledger, name: str, op: str, error: ProcessFailed, note: str) -> NoReturn:
    text = f"the {name} {error.detail}" + (f" during `{op}`" if error.how != "timeout" else "")
    text += note
    if name == CANDIDATE:
        check = "protocol-intact" if error.how == "forged" else "worker-survives"
        ledger.failed(check, text, log=error.log[-1000:])
    raise TracksideError(
        {"timeout": "timeout", "memory": "device"}.get(error.how, "workload"),  # type: ignore[arg-type]
        f"{text}; its output ends: {error.log[-500:]}",
        "make the file run on its own first",
    ) from error


def arm_raised(
    ledger: Ledger,
    name: str,
    op: str,
    raised: dict[str, Any],
    situation: str,
    remedy: str,
    others: Callable[[], int],
) -> NoReturn:
    where = f" at {raised['where']}" if raised["where"] else ""
    # On one line: a candidate's message must not look like one of ours.
    message = " ".join(raised["message"].split())
    text = f"raised {raised['type']}{where} in `{op}`{situation}: {message}"
    if not raised["type"]:
        text = f"could not be used: {message}"
    text += remedy
    if name == CANDIDATE:
        if raised.get("memory") and (count := others()):
            # Whose fault it is cannot be told: alone it might have had enough.
            ledger.failed(
                "machine-quiet",
                f"the candidate {text}; other processes use this GPU ({count}): run again without them",
            )
            ledger.settle()
        ledger.failed("worker-survives", f"the candidate {text}", traceback=raised.get("traceback", ""))
    kind: ErrorKind = "device" if raised.get("memory") else "workload"
    raise TracksideError(kind, f"the {name} {text}", "make the file run on its own first")
