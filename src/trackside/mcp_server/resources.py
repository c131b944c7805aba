"""Resources: a run's record and its parts, items of the handbook, and the status of a watch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from trackside.mcp_server.plain_text import cleaned, plain
from trackside.mcp_server.scope import Scope
from trackside.mcp_server.watch_view import watch_status
from trackside.records.errors import TracksideError

__all__ = ["add_resources"]

# About 15,000 tokens: who reads a resource asked for much, and a record may have megabytes.
_MOST: Final = 60_000
_TEXT: Final = 2_000
# Whole sources, curves and settings of the machine: by name only, and sources not at all, since they may lie
# outside of the roots.
_BULKY: Final = frozenset(
    {"timeline", "telemetry", "environment", "options", "statistics", "memory", "modules"}
)
_NEVER: Final = frozenset({"sources"})
# Fields of a row that hold source of the row's file.
_QUOTED: Final = frozenset({"text", "diff"})
_FEW: Final = 20


def add_resources(server: MCPServer[Any], scope: Scope) -> None:
    """Registers the templates."""

    @server.resource("runs://{run_id}", name="run", mime_type="application/json")
    def run(run_id: str) -> str:
        """A run's record; long lists are cut, with their full counts."""
        full_id, record = _record(scope, run_id)
        parts = {
            name: f"see runs://{full_id}/{name}"
            if name in _BULKY and value
            else _few(_outside_left_out(value, scope))
            for name, value in record.items()
            if name not in _NEVER
        }
        return _text(parts)

    @server.resource("runs://{run_id}/{part}", name="run-part", mime_type="application/json")
    def run_part(run_id: str, part: str) -> str:
        """One part of a run's record: lines, kernels, findings, checks, modules, memory, environment."""
        full_id, record = _record(scope, run_id)
        if part not in record or part in _NEVER:
            known = ", ".join(name for name in record if name not in _NEVER)
            raise ResourceNotFoundError(
                f"run {full_id} has no part {plain(part)}; it has {plain(known, 500)}"
            )
        return _text({"run_id": full_id, part: _outside_left_out(record[part], scope)})

    @server.resource("watch://status", name="watch-status", mime_type="application/json")
    def status_of_watch() -> str:
        """What `trackside watch` knows of each workload now."""
        with _errors_told():
            return _text(watch_status(scope))

    @server.resource("handbook://{item}", name="handbook-item", mime_type="application/json")
    def handbook_item(item: str) -> str:
        """One item of the checklist: why, when, how to check, what to change, what it brings."""
        from dataclasses import asdict

        from trackside.handbook.lookup import find_item

        with _errors_told():
            return _text(asdict(find_item(item)))


def _record(scope: Scope, reference: str) -> tuple[str, dict[str, Any]]:
    with _errors_told():
        return scope.record(reference)


@contextmanager
def _errors_told() -> Iterator[None]:
    try:
        yield
    except TracksideError as error:
        kind = ResourceNotFoundError if error.kind == "not-found" else ResourceError
        raise kind(f"{plain(error.message)}; remedy: {plain(error.remedy)}") from error


def _few(value: Any) -> Any:
    if isinstance(value, list) and len(value) > _FEW:
        return [*value[:_FEW], f"{_FEW} of {len(value)}"]
    return value


def _outside_left_out(value: Any, scope: Scope) -> Any:
    """Rows that quote files outside of the roots, however deep, without what they quote."""
    if isinstance(value, list):
        return [_outside_left_out(row, scope) for row in value]
    if not isinstance(value, dict):
        return value
    quoting = "file" in value and _QUOTED & value.keys() and not scope.holds(str(value["file"] or ""))
    return {
        name: "" if quoting and name in _QUOTED else _outside_left_out(inner, scope)
        for name, inner in value.items()
    }


def _text(document: dict[str, Any]) -> str:
    plain_document = cleaned(document, _TEXT, frozenset({"diff", "fix", "why"}))
    text = orjson.dumps(plain_document, option=orjson.OPT_INDENT_2).decode()
    if len(text) <= _MOST:
        return text
    for name in sorted(plain_document, key=lambda one: -len(orjson.dumps(plain_document[one]))):
        value = plain_document[name]
        while isinstance(value, list) and len(value) > 1 and len(text) > _MOST:
            value = value[: len(value) // 2]
            told = [*value, f"{len(value)} of {len(document[name])}"]
            text = orjson.dumps(plain_document | {name: told}, option=orjson.OPT_INDENT_2).decode()
            plain_document[name] = told if len(text) <= _MOST else value
    return text if len(text) <= _MOST else text[:_MOST] + "\n… cut"
