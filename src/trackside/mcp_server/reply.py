"""An answer on its way out: plain text, rounded, bounded, with links, the same as text and as structure."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

import orjson
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, ResourceLink, TextContent, ToolAnnotations
from pydantic import ValidationError

from trackside.mcp_server.answers import MANY_LINES, Answer
from trackside.mcp_server.plain_text import SHORT, cleaned, plain
from trackside.records.errors import TracksideError

__all__ = ["ACTING", "READING", "Detail", "as_tool", "bounded"]

Detail = Literal["concise", "full"]

READING: Final = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
# What runs a user's program can do what that program does.
ACTING: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
)

# Characters of an answer's JSON, and of one text in it. Four characters are about a token.
_MOST: Final = {"concise": 6_000, "full": 24_000}
_TEXT: Final = {"concise": SHORT, "full": 1_200}
_DIGITS: Final = 4
_LINKS: Final = 5
_TOLD_MISTAKES: Final = 3
_VALUE: Final = 60


class _Tool(Tool):
    """A tool whose refusals are in our words: found, needed, remedy, and nothing hidden in what is quoted."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        try:
            return await super().run(arguments, context, convert_result)
        except UnexpectedToolError as error:
            # The type says that it is logged as a defect; its text stays on this side.
            raise UnexpectedToolError(
                f"Error executing tool {self.name}: internal: it failed on something unforeseen; remedy: ask "
                "otherwise, and have the person look at the server's stderr"
            ) from error.__cause__
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            known = ", ".join(self.parameters["properties"]) or "none"
            told = "; ".join(map(_mistake, error.__cause__.errors()[:_TOLD_MISTAKES]))
            raise ToolError(
                f"Error executing tool {self.name}: usage: {told}; remedy: its arguments are {known}"
            ) from error


def _mistake(found: Any) -> str:
    """One of pydantic's complaints: what stands where, and what is needed."""
    name = plain(".".join(map(str, found["loc"])), _VALUE)
    if found["type"] == "extra_forbidden":
        return f"found the unknown argument `{name}`"
    if found["type"] == "missing":
        return f"found no `{name}`"
    # Its repr shows what is invisible.
    return f"found `{name}` = {plain(repr(found['input']), _VALUE)}; needed: {plain(found['msg'])}"


def as_tool(function: Callable[..., Any], annotations: ToolAnnotations, name: str | None = None) -> Tool:
    """A tool of a method that returns an `Answer`; its docstring says when to use it.

    Errors that a caller can act on become the tool's own; unknown arguments are refused; schemas are
    shortened, since every client pays for them in every conversation.
    """
    signature = inspect.signature(function, eval_str=True)
    returns = signature.return_annotation

    async def called_async(**arguments: Any) -> CallToolResult:
        return await _ended(function(**arguments), arguments.get("detail", "concise"))

    def called(**arguments: Any) -> CallToolResult:
        with _errors_told():
            return bounded(function(**arguments), arguments.get("detail", "concise"))

    outer: Any = functools.wraps(function)(called_async if inspect.iscoroutinefunction(function) else called)
    outer.__signature__ = signature.replace(return_annotation=Annotated[CallToolResult, returns])
    text = " ".join((function.__doc__ or "").split())
    tool = _Tool.from_function(
        outer, name=name or function.__name__, description=text, annotations=annotations
    )
    model = tool.fn_metadata.arg_model
    model.model_config["extra"] = "forbid"
    model.model_rebuild(force=True)
    tool.parameters = _short(model.model_json_schema(by_alias=True))
    # Every tool refuses unknown arguments; said in every schema it would be two percent of the list.
    del tool.parameters["additionalProperties"]
    # What is empty is left out of an answer, so nothing is required; it was validated when it was made.
    tool.fn_metadata.output_schema = _all_optional(_short(tool.fn_metadata.output_schema))
    tool.fn_metadata.output_model = None
    return tool


async def _ended(waiting: Awaitable[Answer], detail: Detail) -> CallToolResult:
    with _errors_told():
        return bounded(await waiting, detail)


@contextmanager
def _errors_told() -> Iterator[None]:
    """Errors with a remedy as the tool's own, which an assistant reads; all others are defects and logged."""
    try:
        yield
    except TracksideError as error:
        message, remedy = plain(error.message, 2 * SHORT), plain(error.remedy)
        raise ToolError(f"{error.kind}: {message}; remedy: {remedy}") from error


def bounded(answer: Answer, detail: Detail = "concise") -> CallToolResult:
    """The answer as text and structure, at most as long as its detail allows; rows are cut from the end."""
    found: dict[str, Any] = _rounded(
        cleaned(answer.model_dump(mode="json", exclude_none=True), _TEXT[detail], MANY_LINES)
    )
    found = _without_empty(found) | ({"rows": _without_empty(found["rows"])} if "rows" in found else {})
    rows: list[Any] = found.get("rows", [])
    total = answer.total if answer.total is not None else len(rows)
    while True:
        if answer.counted and (rows or total):
            found["shown"] = f"{len(rows)} of {total} {answer.counted}"
        text = orjson.dumps(found).decode()
        if len(text) <= _MOST[detail] or not rows:
            break
        # Not one at a time: a run may have thousands of lines.
        del rows[len(rows) - max(1, len(rows) // 5) :]
    if len(text) > _MOST[detail]:
        found = _shortened(found, _MOST[detail])
        text = orjson.dumps(found).decode()
    links = [ResourceLink(uri=uri, name=uri) for uri in found.get("links", [])[:_LINKS]]
    return CallToolResult(content=[TextContent(text=text), *links], structured_content=found)


def _shortened(found: dict[str, Any], most: int) -> dict[str, Any]:
    """What has no rows left to cut: its longest texts and lists give way."""
    while len(orjson.dumps(found)) > most:
        name = max(found, key=lambda one: len(orjson.dumps(found[one])))
        value = found[name]
        if isinstance(value, str) and len(value) > 40:
            found[name] = value[: len(value) // 2] + "… (cut)"
        elif isinstance(value, list) and len(value) > 1:
            found[name] = value[: len(value) // 2]
        else:
            found = {key: inner for key, inner in found.items() if key != name}
    return found


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_empty(inner) for name, inner in value.items() if inner not in ([], {}, "", None)
        }
    return [_without_empty(inner) for inner in value] if isinstance(value, list) else value


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return value


def _short(schema: Any) -> Any:
    """A JSON schema without titles, with the definitions in their places and `null` left unsaid."""
    definitions = schema.get("$defs", {})

    def shorter(node: Any) -> Any:
        if isinstance(node, list):
            return [shorter(inner) for inner in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return shorter(definitions[node["$ref"].rpartition("/")[2]])
        # Only of schemas: a property may be called `title`.
        bare = {name: inner for name, inner in node.items() if name not in ("title", "$defs")}
        choices = [one for one in bare.get("anyOf", []) if one != {"type": "null"}]
        if len(choices) == 1:
            del bare["anyOf"]
            bare = choices[0] | bare
        if bare.get("default", ...) is None:
            del bare["default"]
        fields = bare.pop("properties", None)
        found = {name: shorter(inner) for name, inner in bare.items()}
        return (
            found
            if fields is None
            else found | {"properties": {n: shorter(one) for n, one in fields.items()}}
        )

    return shorter(schema)


def _all_optional(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_all_optional(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {key: _all_optional(one) for key, one in inner.items()}
        if name == "properties"
        else _all_optional(inner)
        for name, inner in schema.items()
        if name not in ("required", "default") or not isinstance(inner, str | list | bool | int | float)
    }
