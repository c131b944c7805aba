"""`trackside mcp`: the server for coding assistants."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from trackside.cli.terminal import JsonOption, verb_app, write_json
from trackside.records.errors import TracksideError, printable

__all__ = ["app"]

app = verb_app()

_INSTALL = "pip install 'trackside[mcp]', or '.[mcp]' in a checkout"
_TO_A_PERSON = """\
serving MCP on stdin and stdout: an assistant starts this by itself, not a person
set one up: trackside mcp --print-config claude-code (or cursor, codex, vscode); Ctrl-C ends this"""


@app.command()
def mcp(
    allow_exec: Annotated[
        bool,
        typer.Option(
            "--allow-exec", help="Let it execute code: profile, compare and measure, under the roots."
        ),
    ] = False,
    root: Annotated[
        list[Path] | None,
        typer.Option(help="A folder whose files it may read and run (default: the working directory)."),
    ] = None,
    http: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="Serve HTTP on 127.0.0.1 instead of stdio; 0: a free port."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --http: the token that clients bring (default: a new one)."),
    ] = None,
    print_config: Annotated[
        str | None,
        typer.Option(
            metavar="CLIENT", help="Print how to set up claude-code, cursor, codex or vscode, and end."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """The server for coding assistants (MCP).

    An assistant starts it and talks to it over stdin and stdout. It reads at once; what executes code or
    loads the machine is refused without --allow-exec. It ends with its client, and its jobs with it.
    """
    if print_config is not None:
        for option, given in (("--http", http), ("--token-file", token_file)):
            if given is not None:
                raise TracksideError(
                    "usage",
                    f"found --print-config with {option}: what is printed starts the server over stdio",
                    f"leave {option} out",
                )
        return _print_config(print_config, root or [], allow_exec, as_json)
    if as_json:
        raise TracksideError("usage", "found --json: stdout is the protocol's", "leave it out")
    if token_file is not None and http is None:
        raise TracksideError("usage", "found --token-file without --http", "add --http PORT")
    if not _has_sdk():
        raise TracksideError("missing-dependency", "found no package `mcp`, which the server needs", _INSTALL)
    from trackside.mcp_server.scope import open_scope

    scope = open_scope(root or [], allow_exec)
    if http is not None:
        from trackside.mcp_server.http import read_token, serve_http

        token = read_token(token_file) if token_file is not None else None
        serve_http(scope, http, token, lambda text: print(printable(text), file=sys.stderr, flush=True))
    else:
        from trackside.mcp_server.stdio import serve_stdio

        if sys.stdin.isatty():
            # A person typed it, and would wait for something to happen.
            print(_TO_A_PERSON, file=sys.stderr, flush=True)
        serve_stdio(scope)
    return 0


def _print_config(client: str, roots: list[Path], allow_exec: bool, as_json: bool) -> int:
    from trackside.mcp_server.clients import CLIENTS, setup_for

    if client not in CLIENTS:
        raise TracksideError(
            "usage", f"found --print-config {client}", f"needed: one of {', '.join(CLIENTS)}"
        )
    options = [word for one in roots for word in ("--root", str(one.expanduser().resolve()))]
    options += ["--allow-exec"] if allow_exec else []
    setup = setup_for(client, options, has_root=bool(roots))
    if as_json:
        write_json(
            {"schema": "trackside.mcp-setup/1", "client": client, "file": setup.file, "text": setup.text}
        )
        return 0
    where = "run this once, in the project's folder" if setup.file is None else f"put this into {setup.file}"
    print(f"{client}: {where}", file=sys.stderr)
    if not _has_sdk():
        # The client would only say that the server does not start.
        print(f"before that: found no package `mcp`, which the server needs: {_INSTALL}", file=sys.stderr)
    print(printable(setup.text))
    return 0


def _has_sdk() -> bool:
    try:
        return importlib.util.find_spec("mcp") is not None
    except ValueError:
        return False
