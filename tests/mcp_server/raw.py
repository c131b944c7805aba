"""A client that writes bytes: for messages that the official one would never send, and for vanishing."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.mcp_server.connected import COMMAND

__all__ = ["Raw", "raw"]

_HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "0"},
}


class Raw:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._number = 0

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next message; what is not one fails here."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        message: dict[str, Any] = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a request, past notifications and answers to others."""
        self._number += 1
        document = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.send(json.dumps(document).encode())
        while (message := self.answer()).get("id") != self._number:
            pass
        return message

    def hello(self) -> None:
        assert "result" in self.request("initialize", **_HELLO)
        self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.request("tools/call", name=name, arguments=arguments)["result"]
        return found


@contextmanager
def raw(folder: Path, *options: str, **environment: str) -> Iterator[Raw]:
    process = subprocess.Popen(
        [*COMMAND, *options],
        cwd=folder,
        env={**os.environ, "TRACKSIDE_HOME": str(folder / ".trackside"), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Raw(process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
