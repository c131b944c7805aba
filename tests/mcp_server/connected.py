"""The official client, connected to the real program over stdio or HTTP."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import CallToolResult

__all__ = ["COMMAND", "Held", "Served", "held", "http_client", "served_http", "stdio"]

COMMAND = [sys.executable, "-P", "-m", "trackside", "mcp"]


@asynccontextmanager
async def stdio(
    folder: Path, *options: str, errors: Path | None = None, **environment: str
) -> AsyncIterator[Client]:
    """A client of a server of its own, that works in the folder."""
    parameters = StdioServerParameters(
        command=COMMAND[0],
        args=[*COMMAND[1:], *options],
        cwd=folder,
        env={**os.environ, "TRACKSIDE_HOME": str(folder / ".trackside"), **environment},
    )
    with open(errors or os.devnull, "w") as log:
        async with Client(stdio_client(parameters, errlog=log)) as client:
            yield client


@dataclass(frozen=True)
class Held:
    """A client that stays connected for several tests."""

    client: Client
    portal: BlockingPortal
    folder: Path

    def call(self, tool: str, **arguments: Any) -> CallToolResult:
        async def called() -> CallToolResult:
            return await self.client.call_tool(tool, arguments)

        return self.portal.call(called)

    def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a call that must succeed."""
        result = self.call(tool, **arguments)
        assert not result.is_error, told(result)
        assert result.structured_content is not None
        return result.structured_content

    def refused(self, tool: str, **arguments: Any) -> str:
        """The complaint about a call that must fail."""
        result = self.call(tool, **arguments)
        assert result.is_error, told(result)
        return told(result)

    def read(self, uri: str) -> str:
        async def called() -> str:
            return str((await self.client.read_resource(uri)).contents[0].text)  # type: ignore[union-attr]

        return self.portal.call(called)


def told(result: CallToolResult) -> str:
    return "\n".join(getattr(block, "text", "") for block in result.content)


@contextmanager
def held(folder: Path, *options: str, errors: Path | None = None, **environment: str) -> Iterator[Held]:
    """A client over stdio for tests that are not asynchronous."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(stdio(folder, *options, errors=errors, **environment)) as client,
    ):
        yield Held(client, portal, folder)


@dataclass(frozen=True)
class Served:
    """A server over HTTP."""

    url: str
    token: str
    process: subprocess.Popen[str]
    said: list[str]


@contextmanager
def served_http(folder: Path, *options: str, **environment: str) -> Iterator[Served]:
    process = subprocess.Popen(
        [*COMMAND, "--http", "0", *options],
        cwd=folder,
        env={**os.environ, "TRACKSIDE_HOME": str(folder / ".trackside"), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = [process.stderr.readline()]
        token = ""
        if "--token-file" not in options:
            said.append(process.stderr.readline())
            found = re.match(r"token: (\S+)", said[1])
            assert found, said
            token = found[1]
        address = re.match(r"serving (http://127\.0\.0\.1:\d+/mcp)$", said[0].strip())
        assert address, said
        yield Served(address[1], token, process, said)
    finally:
        process.terminate()
        process.communicate(timeout=30)


@asynccontextmanager
async def http_client(url: str, token: str) -> AsyncIterator[Client]:
    async with (
        create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client
