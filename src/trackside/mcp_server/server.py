"""The server itself: its tools, resources and prompts on the official SDK, and how it begins and ends."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ToolAnnotations

from trackside import __version__
from trackside.mcp_server.job_tools import JobTools
from trackside.mcp_server.machine_tools import MachineTools
from trackside.mcp_server.prompts import INSTRUCTIONS, add_prompts, refuse_wrong_prompts
from trackside.mcp_server.reply import ACTING, READING, as_tool
from trackside.mcp_server.resources import add_resources
from trackside.mcp_server.run_tools import RunTools
from trackside.mcp_server.scope import Scope
from trackside.mcp_server.source_tools import SourceTools
from trackside.records.errors import TracksideError
from trackside.store.runs import RunStore

__all__ = ["MOST_ARGUMENT_BYTES", "Built", "build_server"]

MOST_ARGUMENT_BYTES: Final = 64 << 10
"""Of one request's parameters as JSON; the longest honest call names files and words."""

# Adds a record to the store with every call, and loads the machine for a while.
_NOTING: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
_ENDING: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)


@dataclass(frozen=True)
class Built:
    """A server with everything registered, and the jobs that must end with it."""

    server: MCPServer[Any]
    jobs: JobTools


def build_server(scope: Scope) -> Built:
    """Importing and registering is all: nothing is read or started before a client asks for something."""
    machine, runs, source, jobs = MachineTools(scope), RunTools(scope), SourceTools(scope), JobTools(scope)
    tools = [
        as_tool(machine.machine_get, READING),
        as_tool(machine.doctor_run, _NOTING),
        as_tool(jobs.ceilings_start, _NOTING),
        as_tool(jobs.profile_start, ACTING),
        as_tool(jobs.compare_start, ACTING),
        as_tool(jobs.job_get, READING),
        as_tool(jobs.job_cancel, _ENDING),
        as_tool(runs.hotspots_list, READING),
        as_tool(runs.kernels_list, READING),
        as_tool(runs.findings_list, READING),
        as_tool(source.source_read, READING),
        as_tool(runs.runs_list, READING),
        as_tool(runs.runs_diff, READING),
        as_tool(source.handbook_search, READING),
    ]

    server: MCPServer[Any] = MCPServer(
        "trackside",
        title="Trackside",
        instructions=INSTRUCTIONS,
        version=__version__,
        tools=tools,
        log_level="WARNING",
        middleware=[_refuse_oversized, refuse_wrong_prompts, _Ahead(scope.store)],
    )
    add_resources(server, scope)
    add_prompts(server)
    return Built(server, jobs)


class _Ahead:
    """Has the runs listed, in a thread, once the client knows the tools and its assistant thinks.

    Without an index a thousand large records take a third of a second to read, and the first answer would
    wait for that. Not before the list of tools: nobody waits for runs then, but for that.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._begun = False

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "tools/list" and not self._begun:
            self._begun = True
            threading.Thread(target=self._list, name="trackside-index", daemon=True).start()
        return result

    def _list(self) -> None:
        # Who asks for runs hears what is wrong with them.
        with suppress(TracksideError):
            self._store.count()


async def _refuse_oversized(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    if ctx.params is not None and ctx.request_id is not None:
        # Not orjson, which has no form for half a character and for numbers beyond 64 bits.
        size = len(json.dumps(dict(ctx.params), default=str))
        if size > MOST_ARGUMENT_BYTES:
            raise MCPError(
                code=INVALID_PARAMS,
                message=f"found {size} bytes of parameters; at most {MOST_ARGUMENT_BYTES}",
            )
    return await call_next(ctx)
