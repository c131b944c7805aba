"""`trackside mcp`: its set-up lines, and what it refuses before it serves."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from trackside.mcp_server.clients import CLIENTS, setup_for

Trackside = Callable[..., subprocess.CompletedProcess[str]]


def _own(words: list[str]) -> bool:
    """Whether a command starts this very installation, wherever it is called from."""
    program = Path(words[0])
    return (
        program.is_absolute()
        and program.exists()
        and program.parent == Path(sys.executable).absolute().parent
    )


def test_claude_code_is_set_up_by_one_command() -> None:
    words = shlex.split(setup_for("claude-code", ["--allow-exec"]).text)
    assert words[:5] == ["claude", "mcp", "add", "trackside", "--"]
    assert _own(words[5:])
    assert words[-2:] == ["mcp", "--allow-exec"]


def test_cursor_and_vscode_are_set_up_by_a_file_of_the_project() -> None:
    cursor = json.loads(setup_for("cursor").text)["mcpServers"]["trackside"]
    vscode = json.loads(setup_for("vscode").text)["servers"]["trackside"]
    assert vscode.pop("type") == "stdio"
    assert cursor == vscode
    assert _own([cursor["command"], *cursor["args"]])
    assert cursor["args"][-3:] == ["mcp", "--root", "${workspaceFolder}"]


def test_codex_is_set_up_by_a_table_of_its_settings(trackside: Trackside, tmp_path: Path) -> None:
    folder = tmp_path / 'a "quoted" folder'
    folder.mkdir()
    done = trackside("mcp", "--print-config", "codex", "--allow-exec", "--root", str(folder))
    server = tomllib.loads(done.stdout)["mcp_servers"]["trackside"]
    assert _own([server["command"], *server["args"]])
    assert server["args"][-3:] == ["--root", str(folder), "--allow-exec"]
    assert "~/.codex/config.toml" in done.stderr


def test_codex_reads_every_path_that_can_be_written(tmp_path: Path) -> None:
    path = str(tmp_path / 'é \U0001f680 \\ " \x7f \n')
    found = tomllib.loads(setup_for("codex", ["--root", path]).text)
    assert found["mcp_servers"]["trackside"]["args"][-1] == path


@pytest.mark.parametrize("client", ["claude-code", "vscode"])
def test_what_is_printed_starts_a_server(trackside: Trackside, tmp_path: Path, client: str) -> None:
    printed = json.loads(trackside("mcp", "--print-config", client, "--json").stdout)
    assert printed["schema"] == "trackside.mcp-setup/1"
    text = printed["text"]
    if client == "claude-code":
        words = shlex.split(text)[5:]
    else:
        (servers,) = json.loads(text).values()
        words = [servers["trackside"]["command"], *servers["trackside"]["args"]]
    words = [word.replace("${workspaceFolder}", str(tmp_path)) for word in words]
    done = subprocess.run([*words, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--allow-exec" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--print-config", "emacs"], "claude-code, cursor, codex, vscode"),
        (["--token-file", "x"], "--token-file without --http"),
        (["--root", "absent"], "found no folder absent"),
        (["--http", "70000"], "65535"),
        (["--http", "0", "--token-file", "absent"], "cannot read the token"),
        (["--token", "secret"], "No such option"),
        (["--host", "0.0.0.0"], "No such option"),
    ],
)
def test_wrong_use_is_said_before_anything_is_served(
    trackside: Trackside, arguments: list[str], complaint: str
) -> None:
    done = trackside("mcp", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_json_is_for_the_set_up_alone(trackside: Trackside) -> None:
    done = trackside("mcp", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["kind"] == "usage"


def test_the_docs_show_every_set_up_and_every_tool() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text()
    for client in CLIENTS:
        setup = setup_for(client)
        program = shlex.split(setup.text)[5] if client == "claude-code" else _command(setup.text)
        shown = setup.text.replace(program, "/path/to/bin/trackside")
        assert setup.file is None or f"`{setup.file}`" in page
        if client in ("cursor", "vscode"):
            shown = json.dumps(json.loads(shown))
        assert shown in page, shown
    for tool in (
        "machine_get",
        "doctor_run",
        "ceilings_start",
        "profile_start",
        "hotspots_list",
        "kernels_list",
    ):
        assert f"`{tool}`" in page
    for tool in ("findings_list", "source_read", "compare_start", "job_get", "job_cancel", "runs_list"):
        assert f"`{tool}`" in page
    assert "`runs_diff`" in page
    assert "`handbook_search`" in page


def _command(text: str) -> str:
    found = re.search(r'"?command"?\s*[:=]\s*"([^"]+)"', text)
    assert found
    return found[1]


@pytest.mark.parametrize("option", [("--http", "0"), ("--token-file", "token")])
def test_a_set_up_for_http_is_refused_instead_of_printed_without_it(
    trackside: Trackside, option: tuple[str, str]
) -> None:
    """Clients are set up to start the server themselves, over stdio."""
    done = trackside("mcp", "--print-config", "codex", *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"found --print-config with {option[0]}" in done.stderr


def test_a_person_who_types_it_is_told_what_it_is_for(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "trackside", "mcp"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(theirs)
        try:
            assert process.stderr is not None
            assert "serving MCP on stdin and stdout" in process.stderr.readline()
            assert "--print-config claude-code" in process.stderr.readline()
            process.terminate()
            # On stdout there is the protocol alone, all the same.
            assert process.communicate(timeout=60)[0] == ""
        finally:
            process.kill()
            os.close(ours)
