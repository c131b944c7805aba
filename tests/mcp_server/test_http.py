"""The server over HTTP: for the official client with the token, and for nobody else."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mcp_server.calls import DEFAULTS, JOBS, REFUSED
from tests.mcp_server.connected import COMMAND, Served, http_client, served_http, told
from tests.mcp_server.stores import filled

from trackside.mcp_server.http import read_token
from trackside.records.errors import TracksideError

_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
_BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _HELLO}).encode()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    filled(folder)
    with served_http(folder) as one:
        yield one


def _port(served: Served) -> int:
    return int(served.url.rpartition(":")[2].partition("/")[0])


def _status(
    served: Served, body: bytes = _BODY, method: str = "POST", path: str = "/mcp", **headers: str
) -> int:
    """The answer to a request with exactly these headers, beside those of any MCP client."""
    connection = http.client.HTTPConnection("127.0.0.1", _port(served), timeout=30)
    plain = {
        "Host": f"127.0.0.1:{_port(served)}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {served.token}",
    }
    sent = {name: value for name, value in (plain | headers).items() if value}
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_official_client_lists_and_calls_tools(served: Served) -> None:
    async def ask() -> tuple[int, str]:
        async with http_client(served.url, served.token) as client:
            tools = (await client.list_tools()).tools
            return len(tools), told(await client.call_tool("runs_list", {}))

    count, answer = asyncio.run(ask())
    assert count == 14
    assert json.loads(answer)["shown"] == "6 of 6 runs"


def test_every_tool_answers_over_http_too(served: Served) -> None:
    async def ask() -> dict[str, tuple[bool, bool]]:
        found = {}
        async with http_client(served.url, served.token) as client:
            runs = json.loads(told(await client.call_tool("runs_list", {"verb": "profile"})))["rows"]
            for tool, arguments in {**DEFAULTS, **REFUSED, **JOBS}.items():
                given = {
                    name: runs[1]["id"] if value == "GPU" else value for name, value in arguments.items()
                }
                given |= {"after": runs[0]["id"]} if tool == "runs_diff" else {}
                right = await client.call_tool(tool, given)
                wrong = await client.call_tool(tool, given | {"nonsense": 1})
                found[tool] = (bool(right.is_error), bool(wrong.is_error))
        return found

    found = asyncio.run(ask())
    assert len(found) == 14
    assert {tool for tool, (right, _) in found.items() if not right} == set(DEFAULTS)
    assert all(wrong for _, wrong in found.values())


def test_the_tests_own_request_is_let_in(served: Served) -> None:
    """Or those that are refused below would prove nothing."""
    assert _status(served) == 200
    assert _status(served, Host=f"localhost:{_port(served)}") == 200
    assert _status(served, Origin=f"http://localhost:{_port(served)}") == 200


@pytest.mark.parametrize(
    "brought",
    ["", "Bearer ", "Bearer wrong", "Basic TOKEN", "TOKEN", "Bearer TOKENx", "Bearer XTOKEN", "bearer"],
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
def test_without_the_token_everything_is_refused(served: Served, brought: str, method: str) -> None:
    given = brought.replace("XTOKEN", served.token[:-1]).replace("TOKEN", served.token)
    assert _status(served, method=method, Authorization=given) == 401
    assert _status(served, method=method, path="/", Authorization=given) == 401


def test_the_token_in_the_address_is_no_token(served: Served) -> None:
    assert _status(served, path=f"/mcp?token={served.token}", Authorization="") == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:PORT",
        "127.0.0.1:1",
        "127.0.0.1.evil.example:PORT",
        "127.0.0.1:PORT.evil",
    ],
)
def test_a_foreign_host_is_refused(served: Served, host: str) -> None:
    """A name of the attacker's that points here: DNS rebinding."""
    assert _status(served, Host=host.replace("PORT", str(_port(served)))) == 421


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "https://127.0.0.1:PORT", "http://127.0.0.1:1", "null", "http://localhost"],
)
def test_a_foreign_origin_is_refused(served: Served, origin: str) -> None:
    assert _status(served, Origin=origin.replace("PORT", str(_port(served)))) == 403


def test_an_oversized_body_is_refused(served: Served) -> None:
    assert _status(served, body=b'{"x": "' + b"x" * 200_000 + b'"}') == 413


@pytest.mark.parametrize(
    "begun", [b"", b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ", b"POST /mcp HTTP/1.1\r\n\r\nGET /m"]
)
def test_who_has_no_token_holds_no_connection_open(served: Served, begun: bytes) -> None:
    with socket.create_connection(("127.0.0.1", _port(served)), timeout=60) as half:
        half.sendall(begun)
        while half.recv(4096):
            pass


def test_it_listens_on_loopback_alone(served: Served) -> None:
    port = f":{_port(served):04X}"
    listening = [
        row.split()[1]
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if row.split()[3] == "0A" and row.split()[1].endswith(port)
    ]
    assert listening == [f"0100007F{port}"]


def test_the_token_is_in_no_command_line_nor_environment(served: Served) -> None:
    for name in ("cmdline", "environ"):
        assert served.token.encode() not in Path(f"/proc/{served.process.pid}/{name}").read_bytes()


def test_a_token_of_a_file_is_taken_and_never_said(tmp_path: Path) -> None:
    token = "abcdefghijklmnopqrstuvwxyz0123"
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    file.chmod(0o600)
    with served_http(tmp_path, "--token-file", str(file)) as served:

        async def ask() -> int:
            async with http_client(served.url, token) as client:
                return len((await client.list_tools()).tools)

        assert asyncio.run(ask()) == 14
        assert _status(served, Authorization="Bearer wrong") == 401
        served.process.send_signal(signal.SIGTERM)
        output, errors = served.process.communicate(timeout=30)
    assert output == ""
    assert token not in errors + "".join(served.said)


@pytest.mark.parametrize(
    ("text", "mode"), [("short", 0o600), ("a" * 40, 0o644), ("a " * 40, 0o600), ("", 0o600)]
)
def test_a_poor_token_file_is_refused(tmp_path: Path, text: str, mode: int) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(TracksideError):
        read_token(file)


def test_a_taken_port_is_said(served: Served, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--http", str(_port(served))], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "choose another --http PORT" in done.stderr
