"""The launcher: what it hands to the program and keeps from it, how it hears of it, and how it ends it."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.processes import alive, gone, until
from tests.profiling.launching import ENVIRONMENT, Starter

from trackside.profiling.inside import MAX_MESSAGE_BYTES, Messages
from trackside.profiling.launch import launch
from trackside.profiling.program import Program
from trackside.records.errors import TracksideError
from trackside.workload.supervisor import descendants

# A capture that is a context manager and no more.
NULL = "contextlib:nullcontext"

# -- streams and files ---------------------------------------------------------------------------------------


def test_the_standard_streams_are_the_very_ones_of_the_launcher(started: Starter, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    one = started(
        "import os\nprint([os.fstat(n).st_ino for n in (0, 1, 2)])\n",
        stdin=reading,
        stderr=writing,
    )
    assert one.process.stdout is not None
    inodes = [os.fstat(end).st_ino for end in (reading, one.process.stdout.fileno(), writing)]
    assert one.end()[1] == f"{inodes}\n"
    os.close(reading)
    os.close(writing)


def test_stdout_can_go_where_stderr_goes(started: Starter) -> None:
    one = started("print('said')\n", {"stdout": 2}, stderr=subprocess.PIPE)
    assert one.process.communicate(timeout=60) == (b"", b"said\n")


def test_a_file_that_the_shell_opened_is_there_in_the_program(started: Starter, tmp_path: Path) -> None:
    given = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(given, True)
    source = f"import os\nprint(os.readlink('/proc/self/fd/{given}'))\n"
    assert started(source, close_fds=False).end()[1] == f"{tmp_path}\n"
    os.close(given)


def test_much_output_goes_past_the_launcher(started: Starter) -> None:
    one = started(
        "import sys\nfor n in range(1024):\n    sys.stdout.buffer.write(bytes([n % 256]) * 65536)\n"
    )
    assert one.process.stdout is not None
    heard = hashlib.sha256()
    while block := one.process.stdout.read(1 << 20):
        heard.update(block)
    sent = hashlib.sha256(b"".join(bytes([n % 256]) * 65536 for n in range(1024)))
    code, _, report = one.end()
    assert (code, heard.digest()) == (0, sent.digest())
    # Itself it takes some 20 MB.
    assert report["peak_kb"] < 48 << 10


def test_a_reader_that_hangs_up_is_met_as_without_us(started: Starter, tmp_path: Path) -> None:
    source = "import sys\nfor n in range(100000):\n    print(n)\n"
    ends = []
    for profiled in (False, True):
        reading, writing = os.pipe()
        os.close(reading)
        options: Any = {"stdout": writing, "stderr": subprocess.PIPE, "cwd": tmp_path}
        if profiled:
            process = started(source, **options).process
        else:
            (tmp_path / "prog.py").write_text(source)
            process = subprocess.Popen([sys.executable, str(tmp_path / "prog.py")], **options)
        os.close(writing)
        _, errors = process.communicate(timeout=60)
        ends.append((process.returncode, errors))
    assert ends[0] == ends[1]
    assert b"BrokenPipeError" in ends[0][1]


def test_the_launcher_leaves_nothing_behind(started: Starter, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    _, _, report = started("print(1)\n", env=ENVIRONMENT | {"TMPDIR": str(tmp_path / "tmp")}).end()
    assert list((tmp_path / "tmp").iterdir()) == []
    # Its three streams, and the listing itself.
    assert report["open"] == 4


# -- messages ------------------------------------------------------------------------------------------------


def test_messages_say_what_was_meant(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    messages = Messages(str(tmp_path / "pipe"))
    text = 'a"\\\n\t\0é€😀\x7f'
    assert messages.send("kind é", text=text, lone="\udcff", whole=-3, part=1.5e-9, yes=True, none=None)
    assert messages.send("odd", nan=float("nan"), inf=-float("inf"))
    first, second = map(json.loads, os.read(reading, 65536).splitlines())
    assert first == {
        **{"text": text, "lone": "\udcff", "whole": -3, "part": 1.5e-9, "yes": True, "none": None},
        **{"kind": "kind é", "serial": 1},
    }
    assert second == {"nan": None, "inf": None, "kind": "odd", "serial": 2}
    os.close(reading)


def test_a_message_never_waits_for_a_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    messages = Messages(str(tmp_path / "pipe"))
    assert not messages.send("nobody reads")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    sent = sum(messages.send("word", text="x" * 1000) for _ in range(200))
    assert 0 < sent < 200
    os.close(reading)
    assert not Messages(str(tmp_path / "nothing")).send("no pipe")


def test_a_message_that_could_be_torn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"at most {MAX_MESSAGE_BYTES}"):
        Messages(str(tmp_path)).send("long", text="x" * MAX_MESSAGE_BYTES)


def test_a_forked_process_says_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    messages = Messages(str(tmp_path / "pipe"))
    if (pid := os.fork()) == 0:
        os._exit(int(messages.send("from a fork")))
    assert os.waitpid(pid, 0)[1] == 0
    assert messages.send("from here")
    assert [json.loads(line)["kind"] for line in os.read(reading, 65536).splitlines()] == ["from here"]
    os.close(reading)


def test_the_launcher_hears_what_the_capture_says(started: Starter) -> None:
    code, _, report = started("pass\n").end()
    assert [message["kind"] for message in report["messages"]] == ["here", "begun", "finished"]
    assert (code, report["lost"], report["garbled"]) == (0, 0, 0)


def test_messages_that_found_the_pipe_full_are_counted(started: Starter) -> None:
    report = started("print('runs')\n", {"capture": "faulty", "configuration": {"how": "talks"}}).end()[2]
    # The launcher reads beside; what it has not heard it knows of.
    words = [message["number"] for message in report["messages"] if message["kind"] == "word"]
    assert len(words) + report["lost"] == 3000
    assert words == sorted(words)
    assert report["begun"]


@pytest.mark.parametrize(("how", "garbled"), [("half a line", 1), ("nonsense", 5)])
def test_what_we_never_write_is_counted_and_passed_over(started: Starter, how: str, garbled: int) -> None:
    source = "import os\nos._exit(3)\n" if how == "half a line" else "raise SystemExit(3)\n"
    code, _, report = started(source, {"capture": "faulty", "configuration": {"how": how}}).end()
    assert (code, report["garbled"]) == (3, garbled)


def test_a_process_that_holds_the_pipe_is_not_waited_for(started: Starter) -> None:
    one = started("print('runs')\n", {"capture": "faulty", "configuration": {"how": "holds the pipe"}})
    code, _, report = one.end()
    (holder,) = [message["pid"] for message in report["messages"] if message["kind"] == "holder"]
    assert alive(holder)
    os.kill(holder, signal.SIGKILL)
    assert (code, report["finished"]) == (0, True)


# -- a capture that fails ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "begun", "trouble"),
    [
        ({"capture": "no_such"}, False, "did not begin: ModuleNotFoundError"),
        ({"capture": "inside"}, False, "did not begin: AttributeError"),
        ({"configuration": {"how": "raises"}}, False, "did not begin: ValueError: on purpose \\udcff"),
        ({"configuration": {"how": "exits"}}, False, "did not begin: SystemExit: 9"),
        ({"configuration": {}}, False, "did not begin: KeyError: 'how'"),
        ({"configuration": {"how": "raises at the end"}}, True, "did not end in order: ValueError"),
        ({"configuration": {"how": "exits at the end"}}, True, "did not end in order: KeyboardInterrupt"),
    ],
    ids=str,
)
def test_a_capture_that_fails_is_told_and_not_shown(
    started: Starter, told: dict[str, Any], begun: bool, trouble: str
) -> None:
    source = "import sys\nprint('runs', [name for name in sys.modules if 'trackside' in name])\nsys.exit(4)\n"
    one = started(source, {"capture": "faulty"} | told, stderr=subprocess.STDOUT)
    code, said, report = one.end()
    assert (code, said) == (4, "runs []\n")
    assert (report["begun"], report["finished"]) == (begun, False)
    assert report["trouble"].startswith(trouble)


# -- time limits ---------------------------------------------------------------------------------------------

PROGRAM_AND_WORKER = """
import os, signal, subprocess, sys, time
{handler}
worker = subprocess.Popen([sys.executable, "-c", "import signal, time\\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\nprint('works', flush=True)\\ntime.sleep(60)"],
    stdout=subprocess.PIPE)
worker.stdout.readline()
print(os.getpid(), worker.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("handler", "code", "report"),
    [
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", -9, (None, 9)),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(6))", 6, (6, None)),
        ("", -15, (None, 15)),
    ],
    ids=["ignores it", "ends in order", "does nothing about it"],
)
def test_a_program_past_its_limit_is_asked_and_then_ended_with_all_below_it(
    started: Starter, handler: str, code: int, report: tuple[int | None, int | None]
) -> None:
    one = started(PROGRAM_AND_WORKER.format(handler=handler), {"seconds": 1.0, "grace": 0.5})
    program, worker = map(int, one.line().split())
    ended, _, said = one.end()
    assert (ended, (said["exit_code"], said["signal"]), said["timed_out"]) == (code, report, True)
    until(lambda: gone([program, worker]), "both are gone")


def test_a_stopped_program_past_its_limit_can_still_end_in_order(started: Starter) -> None:
    one = started(
        "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(6))\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(60)\n",
        {"seconds": 0.5, "grace": 30},
    )
    code, _, report = one.end()
    assert (code, report["timed_out"], report["finished"]) == (6, True, True)


def test_a_program_within_its_limit_is_left_alone(started: Starter) -> None:
    code, said, report = started("print('runs')\n", {"seconds": 60}).end()
    assert (code, said, report["timed_out"]) == (0, "runs\n", False)


# -- in this process -----------------------------------------------------------------------------------------


def test_a_launch_puts_signal_handlers_back(tmp_path: Path) -> None:
    numbers = [*signal.valid_signals()]
    before = [signal.getsignal(number) for number in numbers], signal.pthread_sigmask(signal.SIG_BLOCK, [])
    (tmp_path / "prog.py").write_text("raise SystemExit(3)\n")
    ended = launch(Program(str(tmp_path / "prog.py")), NULL, {}, tmp_path, options=())
    assert (ended.exit_code, ended.begun, ended.finished) == (3, True, True)
    after = [signal.getsignal(number) for number in numbers], signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert after == before


def test_a_launch_from_another_thread_works_without_signals(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text("raise SystemExit(3)\n")
    codes = []

    def run() -> None:
        ended = launch(Program(str(tmp_path / "prog.py")), NULL, {}, tmp_path, options=())
        codes.append(ended.exit_code)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert codes == [3]


def test_an_error_of_ours_while_the_program_runs_ends_the_program(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text("import time\ntime.sleep(60)\n")
    before, pids = set(descendants(os.getpid())), []

    def fail(message: dict[str, Any]) -> None:
        # Other tests may have left processes that serve several of them.
        pids.extend(set(descendants(os.getpid())) - before)
        raise LookupError

    with pytest.raises(LookupError):
        launch(Program(str(tmp_path / "prog.py")), NULL, {}, tmp_path, on_message=fail, options=())
    assert len(pids) >= 2  # the program and the witness
    assert gone(pids)


def test_an_interpreter_that_cannot_be_started_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(TracksideError, match=r"cannot start .*No such file") as caught:
        launch(Program("prog.py"), NULL, {}, tmp_path, options=())
    assert caught.value.kind == "unsupported"


def test_no_room_for_the_hand_over_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nothing"))
    with pytest.raises(TracksideError, match="cannot make a temporary folder") as caught:
        launch(Program("prog.py"), NULL, {}, tmp_path, options=())
    assert "TMPDIR" in caught.value.remedy


# -- torch ---------------------------------------------------------------------------------------------------


@pytest.mark.slow  # three processes import torch
def test_data_loader_workers_by_spawn_find_the_program(started: Starter) -> None:
    pytest.importorskip("torch")
    one = started(
        """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Squares(Dataset):
            def __len__(self): return 8
            def __getitem__(self, index): return torch.tensor(index * index)

        if __name__ == "__main__":
            loader = DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context="spawn")
            print([batch.tolist() for batch in loader])
        """,
        {"capture": "greedy"},
    )
    code, said, report = one.end()
    assert (code, said) == (0, "[[0, 1], [4, 9], [16, 25], [36, 49]]\n")
    assert report["finished"]
