"""The server over stdio as it is in life: noise, nonsense, many calls at once, and clients that vanish."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest
from tests.mcp_server.connected import stdio, told
from tests.mcp_server.raw import Raw, raw
from tests.mcp_server.stores import filled
from tests.processes import alive, gone, until

from trackside.mcp_server.job_tools import JobTools
from trackside.mcp_server.scope import open_scope
from trackside.mcp_server.server import MOST_ARGUMENT_BYTES
from trackside.store.jobs import Jobs

# Prints whenever something is imported, as some packages do, by Python's stream and past it.
_NOISY = """\
import os, sys, threading, time
def noise(event, args):
    if event == "import" and args[0].startswith(("mcp", "uvicorn", "trackside.handbook", "numpy")):
        os.write(1, b"noise\\n")
        if sys.stdout is not None:
            sys.stdout.write("noise\\n")
sys.addaudithook(noise)
"""
# Stands in for a probe that hangs.
_SLOW_DOCTOR = """\
import os, sys, time
def hang(event, args):
    if event == "import" and args[0] == "trackside.machine.doctor.checkup":
        open(os.environ["MARK"], "w").write(str(os.getpid()))
        time.sleep(120)
sys.addaudithook(hang)
"""
_COUNTED_DOCTOR = """\
import atexit, os, sys
def say(word):
    with open(os.environ["MARK"], "a") as file:
        file.write(word + " ")
def count(event, args):
    if event == "import" and args[0] == "trackside.machine.doctor.checkup":
        say("begin")
        atexit.register(say, "end")
sys.addaudithook(count)
"""
_SLEEPS = """\
import os, subprocess, sys, time
pids = [os.getpid()]
if sys.argv[1:]:
    sleeps = [sys.executable, "-c", "import time; time.sleep(300)"]
    pids.append(subprocess.Popen(sleeps, start_new_session=True).pid)
open("pids.part", "w").write(" ".join(map(str, pids)))
os.rename("pids.part", "pids")
time.sleep(300)
"""


# The module that a call imports first never comes.
_HANGS = """
import os, sys, time

class Hanging:
    def find_spec(self, name, path=None, target=None):
        if name == "trackside.handbook.index":
            open(os.environ["MARK"], "w").close()
            time.sleep(300)

sys.meta_path.insert(0, Hanging())
"""


def _plant(folder: Path, source: str) -> dict[str, str]:
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(source)
    return {"PYTHONPATH": str(folder / "site")}


def test_stdout_is_nothing_but_protocol_whoever_prints(tmp_path: Path) -> None:
    with raw(tmp_path, **_plant(tmp_path, _NOISY)) as client:
        client.hello()
        for tool, arguments in (("handbook_search", {"query": "memory"}), ("machine_get", {})):
            assert not client.tool(tool, **arguments).get("isError")
        assert client.process.stdin is not None
        assert client.process.stdout is not None
        client.process.stdin.close()
        assert client.process.stdout.read() == b""
        assert client.process.wait(30) == 0


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}',
        b'{"jsonrpc": "2.0", "id": {}, "method": 7}',
        b'{"jsonrpc": "2.0", "id": 90, "method": "tools/call", "params": []}',
        b'{"jsonrpc": "2.0", "id": 91, "method": "tools/call", "params": {"name": 5, "arguments": "x"}}',
        b'{"jsonrpc": "2.0", "id": 92, "method": "no/such/method"}',
        b'{"jsonrpc": "2.0", "id": 93, "result": {}}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 12345}}',
        b"\xff\xfe\x00broken",
        b'{"jsonrpc": "2.0", "id": 94, "method": "tools/call", "params": {"name": "\\ud800"}}',
        b"[" * 5_000,
    ],
)
def test_nonsense_is_survived(talking: Raw, line: bytes) -> None:
    talking.send(line)
    assert len(talking.request("tools/list")["result"]["tools"]) == 14


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Raw:
    with raw(tmp_path_factory.mktemp("talking")) as client:
        client.hello()
        yield client


def test_oversized_arguments_are_refused_and_the_next_call_is_answered(talking: Raw) -> None:
    refused = talking.request(
        "tools/call", name="handbook_search", arguments={"query": "x" * MOST_ARGUMENT_BYTES}
    )
    assert f"at most {MOST_ARGUMENT_BYTES}" in refused["error"]["message"]
    assert "result" in talking.request("tools/list")


def test_fifty_calls_at_once_are_all_answered(tmp_path: Path) -> None:
    runs = filled(tmp_path)
    calls = [
        ("runs_list", {}),
        ("hotspots_list", {"run": runs["gpu"]}),
        ("findings_list", {"run": runs["cpu"]}),
        ("handbook_search", {"query": "memory"}),
        ("source_read", {"file": "loop.py"}),
    ] * 10
    answers: list[str] = []

    async def ask() -> None:
        async with stdio(tmp_path) as client, anyio.create_task_group() as group:

            async def one(name: str, arguments: dict[str, str]) -> None:
                result = await client.call_tool(name, arguments)
                assert not result.is_error, told(result)
                answers.append(told(result))

            for name, arguments in calls:
                group.start_soon(one, name, arguments)

    asyncio.run(ask())
    assert len(answers) == 50
    assert len(set(answers)) == 5


def test_a_cancelled_call_ends_its_process_and_told_of_progress_before(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    heard: list[float] = []

    async def ask() -> int:
        async with stdio(tmp_path, MARK=str(mark), **_plant(tmp_path, _SLOW_DOCTOR)) as client:
            with anyio.CancelScope() as call:

                async def progress(at: float, total: float | None, message: str | None) -> None:
                    heard.append(at)
                    if mark.exists() and mark.read_text() and len(heard) > 1:
                        call.cancel()

                await client.call_tool("doctor_run", {}, progress_callback=progress)
            pid = int(mark.read_text())
            with anyio.fail_after(30):
                while alive(pid):
                    await anyio.sleep(0.01)
            # The server is none the worse.
            assert not (await client.call_tool("runs_list", {})).is_error
            return pid

    assert asyncio.run(ask()) > 0
    assert heard == sorted(heard)


@pytest.mark.parametrize(
    "how", ["hangs up", "terminates the server", pytest.param("kills the server", marks=pytest.mark.slow)]
)
def test_a_client_that_vanishes_leaves_nothing_behind(tmp_path: Path, how: str) -> None:
    (tmp_path / "sleeps.py").write_text(_SLEEPS)
    with raw(tmp_path, "--allow-exec") as client:
        client.hello()
        args = ["with a child"] if how == "kills the server" else []
        job = client.tool("profile_start", script="sleeps.py", args=args)["structuredContent"]
        until((tmp_path / "pids").exists, "the program starts")
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert all(map(alive, pids))
        server = client.process
        assert server.stdin is not None
        assert server.stdout is not None
        if how == "hangs up":
            server.stdin.close()
            server.stdout.close()
        else:
            server.send_signal(signal.SIGKILL if how == "kills the server" else signal.SIGTERM)
        server.wait(60)
        until(lambda: gone(pids), "the program and its child end")
        # Whoever comes next sees what became of it.
        folder = tmp_path / ".trackside" / "jobs" / job["job"]
        until(lambda: not _at_work(folder), "the job's own processes end")
    assert Jobs(tmp_path / ".trackside").get(job["job"]).state in ("cancelled", "interrupted")


@pytest.mark.slow
def test_a_call_that_hangs_does_not_keep_the_server_when_its_client_goes(tmp_path: Path) -> None:
    """As a read from a dead network drive does."""
    with raw(tmp_path, MARK=str(tmp_path / "mark"), **_plant(tmp_path, _HANGS)) as client:
        client.hello()
        asked = {"name": "handbook_search", "arguments": {"query": "memory"}}
        call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": asked}
        client.send(json.dumps(call).encode())
        until((tmp_path / "mark").exists, "the call hangs")
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert client.process.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_calls_process_ends_with_the_server(tmp_path: Path, number: signal.Signals) -> None:
    mark = tmp_path / "mark"
    with raw(tmp_path, MARK=str(mark), **_plant(tmp_path, _SLOW_DOCTOR)) as client:
        client.hello()
        call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "doctor_run"}}
        client.send(json.dumps(call).encode())
        until(lambda: mark.exists() and mark.read_text(), "the doctor is at work")
        pid = int(mark.read_text())
        assert alive(pid)
        client.process.send_signal(number)
        client.process.wait(60)
        until(lambda: gone([pid]), "the doctor ends")


def test_a_cancelled_job_and_its_program_end(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(_SLEEPS)
    with raw(tmp_path, "--allow-exec") as client:
        client.hello()
        client.tool("profile_start", script="sleeps.py")
        until((tmp_path / "pids").exists, "the program starts")
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert client.tool("job_cancel", job="last")["structuredContent"]["state"] == "cancelled"
        assert gone(pids)
        assert client.tool("job_get")["structuredContent"]["state"] == "cancelled"


@pytest.mark.slow
def test_an_assistant_that_starts_job_after_job_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(_SLEEPS)
    with raw(tmp_path, "--allow-exec") as client:
        client.hello()
        answers = [client.tool("profile_start", script="sleeps.py") for _ in range(9)]
        assert [bool(answer.get("isError")) for answer in answers] == [False] * 8 + [True]
        assert "at most 8 may be" in answers[-1]["content"][0]["text"]
        assert client.process.stdin is not None
        client.process.stdin.close()
        client.process.wait(60)
    states = {job.state for job in Jobs(tmp_path / ".trackside").list()}
    assert states <= {"cancelled", "interrupted"}


@pytest.mark.slow
def test_an_assistant_that_starts_jobs_all_at_once_is_stopped_too(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(_SLEEPS)
    refused: list[bool] = []

    async def ask() -> None:
        async with stdio(tmp_path, "--allow-exec") as client, anyio.create_task_group() as group:

            async def one() -> None:
                refused.append((await client.call_tool("profile_start", {"script": "sleeps.py"})).is_error)

            for _ in range(20):
                group.start_soon(one)

    asyncio.run(ask())
    print(f"{refused.count(False)} of {len(refused)} were started", file=sys.stderr)
    assert (refused.count(False), refused.count(True)) == (8, 12)
    # All of them ended with the server: it had them in one object.
    assert {job.state for job in Jobs(tmp_path / ".trackside").list()} <= {"cancelled", "interrupted"}


def test_calls_at_once_share_one_object_of_jobs(tmp_path: Path) -> None:
    for number in range(20):
        tools = JobTools(open_scope([tmp_path]))
        together = threading.Barrier(8)

        def find(tools: JobTools = tools, together: threading.Barrier = together) -> int:
            together.wait()
            return id(tools._open())

        # Threads change hands between any two instructions, so that a gap is met.
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(8) as pool:
                found = {job.result() for job in [pool.submit(find) for _ in range(8)]}
        finally:
            sys.setswitchinterval(before)
        tools.close()
        assert len(found) == 1, number


def test_doctors_take_turns(tmp_path: Path) -> None:
    """Many at once would load the machine beside a measurement."""
    mark = tmp_path / "mark"

    async def ask() -> None:
        environment = {"MARK": str(mark), **_plant(tmp_path, _COUNTED_DOCTOR)}
        async with stdio(tmp_path, **environment) as client, anyio.create_task_group() as group:

            async def one() -> None:
                result = await client.call_tool("doctor_run", {"family": "os"})
                assert not result.is_error, told(result)

            for _ in range(3):
                group.start_soon(one)

    asyncio.run(ask())
    assert mark.read_text() == "begin end " * 3


def _at_work(folder: Path) -> bool:
    """Whether a process names the job's folder in its command line."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in words and alive(int(pid)):
            return True
    return False


def test_without_the_sdk_the_verb_says_how_to_install_it(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['mcp'] = None\n"
        "from trackside.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, "mcp", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'trackside[mcp]'" in done.stderr
    # Who sets a client up is told before that says no more than that the server does not start.
    done = run("--print-config", "codex")
    assert done.returncode == 0
    assert tomllib.loads(done.stdout)
    assert "pip install 'trackside[mcp]'" in done.stderr


def test_the_answer_of_a_job_is_json_like_all_others(talking: Raw) -> None:
    refused = talking.tool("profile_start", script="absent.py")
    assert refused["isError"]
    assert "--allow-exec" in json.dumps(refused)


def test_the_index_is_made_while_the_assistant_reads_the_list_of_tools(tmp_path: Path) -> None:
    filled(tmp_path)
    index = tmp_path / ".trackside/index.sqlite3"
    index.unlink(missing_ok=True)

    async def play() -> None:
        async with stdio(tmp_path) as client:
            assert not index.exists()
            await client.list_tools()
            await asyncio.to_thread(until, index.exists, "an index without a question about runs")

    asyncio.run(play())


def test_runs_that_cannot_be_read_ahead_are_told_of_when_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / ".trackside").mkdir()
    (tmp_path / ".trackside/runs").write_text("a file where a folder should be")

    async def play() -> None:
        async with stdio(tmp_path) as client:
            await client.list_tools()
            result = await client.call_tool("runs_list", {})
            assert result.is_error
            assert "cannot read" in told(result)

    asyncio.run(play())
