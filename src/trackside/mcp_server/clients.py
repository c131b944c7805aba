"""How each assistant is told of this server: one command, or one snippet for one file."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["CLIENTS", "Setup", "setup_for"]

CLIENTS: Final = ("claude-code", "cursor", "codex", "vscode")

# These two start servers wherever they themselves were started, and put the project's folder in its place.
_FOLDER: Final = "${workspaceFolder}"


@dataclass(frozen=True)
class Setup:
    client: str
    file: str | None
    """Where the text belongs; None for a command to run."""
    text: str


def setup_for(client: str, options: Sequence[str] = (), has_root: bool = False) -> Setup:
    """The set-up of a client.

    Args:
        client: one of `CLIENTS`.
        options: of the verb, to be carried over: `--allow-exec`, `--root`.
        has_root: whether a root is among them.
    """
    program, *words = [*_program(), "mcp"]
    if client in ("cursor", "vscode") and not has_root:
        options = ["--root", _FOLDER, *options]
    words += options
    if client == "claude-code":
        return Setup(client, None, shlex.join(["claude", "mcp", "add", "trackside", "--", program, *words]))
    if client == "codex":
        lines = ["[mcp_servers.trackside]", f"command = {_toml(program)}", f"args = {_toml(words)}"]
        return Setup(client, "~/.codex/config.toml", "\n".join(lines))
    if client == "cursor":
        document = {"mcpServers": {"trackside": {"command": program, "args": words}}}
        return Setup(client, ".cursor/mcp.json", json.dumps(document, indent=2))
    document = {"servers": {"trackside": {"type": "stdio", "command": program, "args": words}}}
    return Setup(client, ".vscode/mcp.json", json.dumps(document, indent=2))


def _toml(value: str | list[str]) -> str:
    """As JSON, whose strings and arrays of them are TOML's too; but TOML knows no pairs of surrogates."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda found: f"\\U{ord(found[0]):08x}", text)


def _program() -> list[str]:
    """This installation's own program, wherever the client starts it from."""
    script = Path(sys.executable).absolute().with_name("trackside")
    return (
        [str(script)] if script.exists() else [str(Path(sys.executable).absolute()), "-P", "-m", "trackside"]
    )
