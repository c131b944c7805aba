"""The server over HTTP: loopback only, with a token, for clients that cannot start a program."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import stat
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Final

from mcp.server.transport_security import TransportSecuritySettings

from trackside.mcp_server.scope import Scope
from trackside.mcp_server.server import MOST_ARGUMENT_BYTES, build_server
from trackside.records.errors import TracksideError

__all__ = ["PATH", "read_token", "serve_http"]

PATH: Final = "/mcp"
_HOST: Final = "127.0.0.1"
_TOKEN_BYTES: Final = 32
# Short ones can be guessed; 22 characters of base64 are 128 bits.
_LEAST_TOKEN: Final = 22
# Protocol around the parameters.
_MOST_BODY: Final = MOST_ARGUMENT_BYTES + (16 << 10)
# From the connection to the end of the first request's headers: without a token nobody may hold one open.
_HEADERS_SECONDS: Final = 5.0
# Requests under way get so long once the server is told to end.
_GRACE_SECONDS: Final = 1

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]


def read_token(path: Path) -> str:
    """The token in a file that is its owner's alone.

    Raises:
        TracksideError: where it is missing, open to others, or too short.
    """
    try:
        mode = path.stat().st_mode
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise TracksideError(
            "usage", f"cannot read the token in {path}: {error}", _MAKE.format(path)
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise TracksideError("usage", f"others may read {path}", f"chmod 600 {path}")
    if len(token) < _LEAST_TOKEN or not token.isprintable() or " " in token:
        raise TracksideError(
            "usage", f"found {len(token)} characters in {path}; needed: {_LEAST_TOKEN}", _MAKE.format(path)
        )
    return token


_MAKE: Final = "(umask 077; python3 -c 'import secrets; print(secrets.token_urlsafe(32))' > {})"


def serve_http(scope: Scope, port: int, token: str | None, say: Callable[[str], None]) -> None:
    """Serves until a signal ends it.

    Args:
        scope: what it may touch.
        port: 0 takes a free one.
        token: None makes one, which is said once.
        say: called with the address, and with a token that was made here.

    Raises:
        TracksideError: kind `busy` where the port is taken.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.loop.call_later(_HEADERS_SECONDS, self._without_request)

        def _without_request(self) -> None:
            if self.cycle is None:
                self.transport.close()

    listening = _listen(port)
    port = listening.getsockname()[1]
    say(f"serving http://{_HOST}:{port}{PATH}")
    if token is None:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        say(f"token: {token}")
    built = build_server(scope)
    names = (f"{_HOST}:{port}", f"localhost:{port}")
    app = built.server.streamable_http_app(
        streamable_http_path=PATH,
        host=_HOST,
        max_request_body_size=_MOST_BODY,
        transport_security=TransportSecuritySettings(
            allowed_hosts=list(names), allowed_origins=[f"http://{name}" for name in names]
        ),
    )
    config = uvicorn.Config(
        _with_token(app, token),
        log_level="warning",
        http=Impatient,
        ws="none",
        # Requests are the client's business, and their headers hold the token.
        access_log=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        built.jobs.close()
        listening.close()


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_HOST, port))
        # Here, so that who reads the address can connect at once.
        listening.listen()
    except OSError as error:
        listening.close()
        raise TracksideError(
            "busy",
            f"cannot listen on {_HOST}:{port}: {os.strerror(error.errno or 0)}",
            "choose another --http PORT",
        ) from error
    return listening


def _with_token(app: _App, token: str) -> _App:
    """Answers 401 to every request that does not bring the token, whatever it asks for."""
    wanted = f"Bearer {token}".encode()

    async def guarded(scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            return await app(scope, receive, send)
        brought = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        if scope["type"] == "http" and len(brought) == 1 and hmac.compare_digest(brought[0], wanted):
            return await app(scope, receive, send)
        if scope["type"] != "http":
            return None  # websockets are not offered
        headers = [
            (b"www-authenticate", b"Bearer"),
            (b"content-type", b"text/plain"),
            # Kept alive, it could be held open by half a second request.
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"a bearer token is needed"})

    return guarded
