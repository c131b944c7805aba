"""How soon `trackside mcp` lists its tools, beside a bare server of the SDK, and how fast it answers."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.context import Bar, Context, Outcome
from trackside.records.profile import ProfileRecord
from trackside.store.runs import RunStore

__all__ = ["run"]

MOST_START_SECONDS = 0.4
"""Over the bare server, in the same run."""
MOST_ANSWER_SECONDS = 0.1
RUNS = 1_000
ROUNDS, CALLS = 15, 20

BARE = """\
from mcp.server import MCPServer
server = MCPServer("bare", log_level="WARNING")
@server.tool()
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b
server.run("stdio")
"""
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}


class _Client:
    """As little as can be between the clock and the server."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._number = 0

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        while True:
            message: dict[str, Any] = json.loads(self._process.stdout.readline())
            if message.get("id") == self._number:
                return message

    def hello(self) -> None:
        self.request("initialize", **HELLO)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, document: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(document).encode() + b"\n")
        self._process.stdin.flush()


@contextmanager
def _connected(command: list[str], folder: Path) -> Iterator[_Client]:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"TRACKSIDE_HOME": str(folder / ".trackside")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield _Client(process)
    finally:
        process.kill()
        process.communicate()


def run(context: Context) -> Outcome:
    ours = [sys.executable, "-P", "-m", "trackside", "mcp"]
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as scratch:
        folder = Path(scratch)
        context.say(f"a store of {RUNS} runs")
        profile = _fill(folder)
        starts, size = _starts(ours, folder, context.tries or ROUNDS)
        answers = _answers(ours, folder, profile)
    over = statistics.median(starts["ours"]) - statistics.median(starts["bare"])
    slowest = max(answers, key=lambda tool: statistics.median(answers[tool]["seconds"]))
    median = statistics.median(answers[slowest]["seconds"])
    worst = max(max(one["seconds"]) for one in answers.values())
    calls = sum(len(one["seconds"]) for one in answers.values())
    bars = [
        Bar(
            "start to the first list of tools, over a bare one-tool server",
            f"≤ {1e3 * MOST_START_SECONDS:g} ms",
            f"{1e3 * over:.0f} ms: {_told(starts['ours'])}, bare {_told(starts['bare'])}",
            over <= MOST_START_SECONDS,
        ),
        Bar(
            f"every reading tool answers at once on a store of {RUNS} runs",
            f"median < {1e3 * MOST_ANSWER_SECONDS:g} ms",
            f"slowest {slowest} {1e3 * median:.1f} ms, n {CALLS} each; worst of {calls} {1e3 * worst:.0f} ms",
            median < MOST_ANSWER_SECONDS,
        ),
    ]
    first = ", ".join(f"{tool} {1e3 * one['first']:.0f}" for tool, one in answers.items())
    notes = [f"tools/list: {size} bytes, about {size // 4} tokens", f"first calls in ms: {first}"]
    return Outcome(bars, {"starts": starts, "answers": answers, "list_bytes": size}, True, notes)


def _told(seconds: list[float]) -> str:
    low, _, high = statistics.quantiles(seconds, n=4)
    middle = statistics.median(seconds)
    return f"median {1e3 * middle:.0f} ms [{1e3 * low:.0f}, {1e3 * high:.0f}], n {len(seconds)}"


def _starts(ours: list[str], folder: Path, rounds: int) -> tuple[dict[str, list[float]], int]:
    """Seconds from the start of the process to the list, in turns: a busy machine is busy for both."""
    commands = {"bare": [sys.executable, "-P", "-c", BARE], "ours": ours}
    found: dict[str, list[float]] = {name: [] for name in commands}
    size = 0
    # The first round fills caches of files for both.
    for number in range(rounds + 1):
        for name in sorted(commands, reverse=bool(number % 2)):
            began = time.perf_counter()
            with _connected(commands[name], folder) as client:
                client.hello()
                tools = client.request("tools/list")["result"]["tools"]
                seconds = time.perf_counter() - began
            if name == "ours":
                size = len(json.dumps({"tools": tools}, separators=(",", ":"), ensure_ascii=False).encode())
            if number:
                found[name].append(seconds)
    return found, size


def _answers(ours: list[str], folder: Path, profile: str) -> dict[str, dict[str, Any]]:
    calls: dict[str, dict[str, Any]] = {
        "machine_get": {},
        "runs_list": {},
        "hotspots_list": {},
        "kernels_list": {},
        "findings_list": {},
        "runs_diff": {"before": profile},
        "source_read": {"file": "train.py", "line": 7},
        "handbook_search": {"query": "pinned memory"},
        "job_get": {},
    }
    found = {}
    with _connected(ours, folder) as client:
        client.hello()
        for tool, arguments in calls.items():
            times = []
            for _ in range(CALLS + 1):
                began = time.perf_counter()
                result = client.request("tools/call", name=tool, arguments=arguments)["result"]
                times.append(time.perf_counter() - began)
                # There are no jobs: to say so takes as long.
                assert tool == "job_get" or not result.get("isError"), result
            found[tool] = {"first": times[0], "seconds": times[1:]}
    return found


def _fill(folder: Path) -> str:
    """Profiles with as much in them as a large training script gives; the id of the first."""
    store = RunStore(folder / ".trackside")
    source = [f"value_{line} = layer_{line}(value_{line - 1})" for line in range(1, 301)]
    (folder / "train.py").write_text("\n".join(source))
    share = 1 / len(source)
    line = {
        "function": "main",
        "device_ms": 0.0,
        "backward_ms": 0.0,
        "cpu_ms": 0.1,
        "share": share,
        "calls": 1.0,
    }
    kernel = {"calls": 4.0, "total_ms": 0.2, "share": 0.005, "median_us": 50.0, "bound": "memory"}
    record = ProfileRecord.model_validate(
        {
            "command": ["python", "train.py"],
            "verdict": "A step takes 30 ms.",
            "device": "cpu",
            "step_ms": 30.0,
            "step_spread": 0.02,
            "steps": 10,
            "steps_found_by": "calls of Optimizer.step",
            "windows": [],
            "breakdown_ms": {"compute": 25, "communication": 0, "copy": 0, "host": 5, "idle": 0},
            "attributed_share": 1.0,
            "program": {"exit_code": 0, "signal": None, "seconds": 12.0},
            "lines": [
                line | {"file": "train.py", "line": n, "text": text} for n, text in enumerate(source, 1)
            ],
            "kernels": [
                kernel | {"id": f"k{n}", "name": f"aten::operator_{n}", "lines": [f"train.py:{n}"]}
                for n in range(1, 201)
            ],
            "sources": {"train.py": source},
            "started": "2026-11-16T14:22:05+00:00",
            "seconds": 14.0,
            "version": "0.1.0",
        }
    ).to_dict()
    ids = []
    for _ in range(RUNS):
        run = store.new_run("profile")
        store.write_record(run, record | {"run_id": run.id})
        ids.append(run.id)
    return ids[0]
