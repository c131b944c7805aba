"""Work of seconds inside a call: a child process, progress while it runs, and its end when the call ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import anyio
import orjson
from anyio.abc import Process
from mcp.server.mcpserver import Context

from trackside.mcp_server.plain_text import plain
from trackside.mcp_server.scope import Scope
from trackside.records.errors import ERROR_KINDS, TracksideError

__all__ = ["run_inline"]

_TICK_SECONDS = 0.5
# The kernel ends it with the server, however that ends.
_CHILD = """\
import ctypes, os, runpy, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit(1)
runpy.run_module("trackside", run_name="__main__", alter_sys=True)
"""
# More than the longest record of a doctor by far.
_MOST_BYTES = 32 << 20


async def run_inline(
    scope: Scope, words: Sequence[str], ctx: Context[Any, Any], doing: str, seconds: float
) -> dict[str, Any]:
    """The document of a verb that runs as a child; a cancelled call kills it and what it started.

    Raises:
        TracksideError: the verb's own, or kind `timeout`.
    """
    # -P: a file of the project that is named like a module of ours must not be imported by a tool that reads.
    command = [sys.executable, "-P", "-c", _CHILD, str(os.getpid()), *words]
    process = await anyio.open_process(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=scope.folder,
        env=os.environ | {"TRACKSIDE_HOME": str(scope.store.root)},
        start_new_session=True,
    )
    try:
        with anyio.move_on_after(seconds):
            return _document(await _output(process, ctx, doing))
        raise TracksideError(
            "timeout", f"{words[0]} took more than {seconds:g} s", "run it on the command line"
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            # The number of one that was waited for may be another's by now.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()


async def _output(process: Process, ctx: Context[Any, Any], doing: str) -> bytes:
    """All that it writes; the client hears meanwhile that it is at work."""
    assert process.stdout is not None
    parts: list[bytes] = []

    async def tick() -> None:
        began = anyio.current_time()
        while True:
            await ctx.report_progress(anyio.current_time() - began, None, doing)
            await anyio.sleep(_TICK_SECONDS)

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        async for part in process.stdout:
            parts.append(part)
            if sum(map(len, parts)) > _MOST_BYTES:
                break
        group.cancel_scope.cancel()
    return b"".join(parts)


def _document(output: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(output)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise TracksideError("internal", "the child left no document", "run the verb on the command line")
    error = document.get("error")
    if isinstance(error, dict) and error.get("kind") in ERROR_KINDS:
        raise TracksideError(error["kind"], plain(str(error.get("message"))), plain(str(error.get("remedy"))))
    return document
