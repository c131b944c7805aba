"""How long a list of 10,000 runs takes: in a fresh process with the index made, without it, as a command."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.context import ROOT, Bar, Context, Outcome

__all__ = ["judge", "run"]

RUNS = 10_000
LIMIT_SECONDS = 0.2
TRIES = 15
# A comparison as it was stored, of the size that they have.
RECORD = ROOT / "tests" / "store" / "records" / "compare-1.json"

# Timed in the process: what a server that is already there waits for.
LIST = """
import sys, time
from pathlib import Path
from trackside.store.runs import RunStore
began, began_cpu = time.perf_counter(), time.process_time()
found = RunStore(Path(sys.argv[1])).list(limit=int(sys.argv[2]) or None)
print(time.perf_counter() - began, time.process_time() - began_cpu, len(found))
"""


def run(context: Context) -> Outcome:
    tries = context.tries or TRIES
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as scratch:
        root = Path(scratch) / "store"
        _fill(root)
        first, _ = _list(root, 0)
        lists = [_list(root, 0) for _ in range(tries)]
        data: dict[str, Any] = {
            "runs": RUNS,
            "record_bytes": RECORD.stat().st_size,
            "load": os.getloadavg()[0],
            "first": first,
            "index_bytes": (root / "index.sqlite3").stat().st_size,
            "list": [seconds for seconds, _ in lists],
            "list_cpu": [seconds for _, seconds in lists],
            "newest_20": [_list(root, 20)[0] for _ in range(tries)],
            "command": [_command(root, "list") for _ in range(tries)],
            "command_json_all": [_command(root, "list", "--limit", "0", "--json") for _ in range(tries)],
        }
    return Outcome([judge(data)], data, True, _notes(data))


def judge(data: dict[str, Any]) -> Bar:
    # The whole command, as it is typed: Python, its imports, the list and its table.
    times = data["command"]
    return Bar(
        f"`trackside runs list` on {data['runs']:,} runs, from start to end",
        f"≤ {LIMIT_SECONDS * 1e3:g} ms",
        f"{_told(times)}, index made",
        statistics.median(times) <= LIMIT_SECONDS,
    )


def _told(times: list[float]) -> str:
    shown = [f"{value * 1e3:.0f}" for value in (statistics.median(times), min(times), max(times))]
    return f"median {shown[0]} ms [{shown[1]}, {shown[2]}], n {len(times)}"


def _notes(data: dict[str, Any]) -> list[str]:
    return [
        f"the first list, which makes the index: {data['first']:.2f} s; it has {data['index_bytes']:,} bytes",
        f"CPU time of the list: {_told(data['list_cpu'])}",
        f"the newest 20: {_told(data['newest_20'])}",
        f"in a process that is there, all runs: {_told(data['list'])}",
        f"`trackside runs list --limit 0 --json`: {_told(data['command_json_all'])}",
        f"load of the machine at the beginning: {data['load']:.1f}",
    ]


def _fill(root: Path) -> None:
    """As RunStore leaves runs, but without waiting for the disk ten thousand times."""
    record = json.loads(RECORD.read_text())
    for number in range(RUNS):
        clock = f"{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}"
        run_id = f"c-20261101-{clock}-{number:04x}"
        folder = root / "runs" / run_id
        folder.mkdir(parents=True)
        start = {
            "id": run_id,
            "verb": "compare",
            "started_ns": 1_793_491_200_000_000_000 + number * 1_000_000_000,
            "host": "bench",
            "pid": 1,
            "process": "",
            "argv": ["trackside", "compare"],
        }
        (folder / "run.json").write_text(json.dumps(start, indent=2))
        (folder / "record.json").write_text(json.dumps(record | {"run_id": run_id}, indent=2))


def _list(root: Path, limit: int) -> tuple[float, float]:
    """Seconds by the clock, and of the CPU."""
    done = subprocess.run(
        [sys.executable, "-c", LIST, str(root), str(limit)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, cpu_seconds, number = done.stdout.split()
    if int(number) != (limit or RUNS):
        raise RuntimeError(f"listed {number} runs of {limit or RUNS}")
    return float(seconds), float(cpu_seconds)


def _command(root: Path, *arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "trackside", "runs", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "TRACKSIDE_HOME": str(root)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - began
