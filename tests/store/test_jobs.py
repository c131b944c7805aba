"""Jobs: real verbs in real processes, ended in every way that there is, with nothing left behind."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.processes import alive, gone, holding_process, until

from trackside.records.errors import TracksideError
from trackside.store import job_files, job_process
from trackside.store.job_files import END_FILE, JOB_FILE, LOG_FILE, RUNNER_FILE, read_job
from trackside.store.job_note import NOTE_FILE
from trackside.store.job_process import marked
from trackside.store.jobs import Job, Jobs
from trackside.store.lock import DeviceLock
from trackside.store.runs import RunStore

# A program with a child in a session of its own, and a daemon that nothing but its number tells of: its
# parent is gone and its environment empty.
FAMILY = """
import os, pathlib, signal, subprocess, sys
here = pathlib.Path(__file__).parent
if sys.argv[1:] == ["deaf"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
own = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if (daemon := os.fork()) != 0:
        os.write(write, str(daemon).encode())
        os._exit(0)
    os.execve("/bin/sleep", ["sleep", "600"], {})
daemon = int(os.read(read, 20))
(here / "new").write_text(f"{os.getpid()} {own} {daemon}")
(here / "new").rename(here / "family")
while True:
    signal.pause()
"""

OWNER = """
import sys, time
from pathlib import Path
from trackside.store.jobs import Jobs
with Jobs(Path(sys.argv[1]), grace_s=1.0) as jobs:
    print(jobs.start(sys.argv[2:]).id, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests measure at the same time."""
    monkeypatch.setenv("TRACKSIDE_LOCKS", str(tmp_path / "locks"))


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with Jobs(tmp_path / "home", grace_s=5.0) as own:
        yield own


@pytest.fixture
def family(tmp_path: Path) -> Path:
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    return script


def members(script: Path) -> list[int]:
    """The processes of FAMILY, once all of them are there."""
    place = script.parent / "family"
    until(place.exists, "the program's processes are there")
    return [int(pid) for pid in place.read_text().split()]


def process_of(job: Job) -> int:
    return int(json.loads((job.folder / RUNNER_FILE).read_bytes())["pid"])


def verb_of(job: Job) -> int:
    """The process `python -m trackside …` of a job: the only child that its runner was born with."""
    found: list[int] = []

    def look() -> bool:
        for pid in marked(job.folder):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.endswith(b"trackside/__main__.py") for word in words):
                found.append(pid)
        return bool(found)

    until(look, "the verb is there")
    return found[0]


@contextmanager
def owner(home: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], Job]]:
    """Another process, and the job that it has started."""
    command = [sys.executable, "-c", OWNER, str(home), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, Jobs(home).get(process.stdout.readline().strip())
        finally:
            process.kill()


def ended(home: Path, job: Job) -> Job:
    return Jobs(home).wait(job.id, 60)


# -- how jobs end by themselves ------------------------------------------------------------------------------


def test_a_verb_that_answers_is_done_and_its_run_lies_in_the_same_store(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "trackside.py").write_text("raise SystemExit('the wrong one')")
    job = jobs.start(["machine"], cwd=tmp_path)
    assert job.argv == ("machine", "--json")
    assert job.state in ("running", "done")
    job = jobs.wait(job.id)
    assert (job.state, job.exit_code, job.reason) == ("done", 0, None)
    assert job.created <= (job.started or "") <= (job.ended or "")
    answer = jobs.result(job.id)
    assert answer is not None
    assert answer["schema"] == "trackside.machine/1"
    assert answer["run_id"] == job.run_id == RunStore(jobs.root).resolve("last")
    assert jobs.cancel(job.id) == job, "what has ended stays as it is"


def test_a_profile_whose_program_fails_is_done_and_tells_its_own_words_from_the_programs(
    jobs: Jobs, tmp_path: Path
) -> None:
    """Its exit code is the program's; and a run that the program makes is not the job's."""
    (tmp_path / "fails.py").write_text(
        "import pathlib, sys\nfrom trackside.store.runs import RunStore\n"
        f"RunStore(pathlib.Path({str(jobs.root)!r})).new_run('compare')\n"
        "print('\\x1b[2J' + 300 * 'x')\nraise SystemExit(2)\n"
    )
    job = jobs.wait(jobs.start(["profile", "fails.py", "--json"], cwd=tmp_path).id)
    assert job.argv == ("profile", "--json", "fails.py", "--json"), "the second is the program's"
    assert (job.state, job.exit_code) == ("done", 2)
    assert (job.run_id or "").startswith("p-")
    assert job.progress.startswith("ended with exit code 2")
    (said,) = [line for line in jobs.log(job.id) if "xxx" in line]
    assert said.startswith(r"\x1b[2Jxxx")
    assert RunStore(jobs.root).count(verb="compare") == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["no-such-verb"], "No such command"), (["compare", "a.py", "b.py"], "a.py")],
)
def test_a_verb_that_refuses_fails_with_its_own_reason(jobs: Jobs, words: list[str], reason: str) -> None:
    job = jobs.wait(jobs.start(words).id)
    assert (job.state, job.exit_code) == ("failed", 2)
    assert reason in (job.reason or "")
    assert (jobs.result(job.id) or {})["error"]["message"] == job.reason


def test_a_verb_that_is_killed_fails_and_what_it_started_ends(jobs: Jobs, family: Path) -> None:
    job = jobs.start(["profile", str(family)])
    processes = members(family)
    os.kill(verb_of(job), signal.SIGKILL)
    job = jobs.wait(job.id)
    assert (job.state, job.exit_code) == ("failed", -9)
    assert "signal 9" in (job.reason or "")
    assert gone(processes)
    assert jobs.result(job.id) is None


# -- waiting for a device ------------------------------------------------------------------------------------


def test_a_job_is_queued_while_another_measures_and_says_who(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "quick.py").write_text("print('ran')")
    with DeviceLock("cpu", verb="compare"):
        job = jobs.start(["profile", "quick.py"], cwd=tmp_path)
        until(lambda: jobs.get(job.id).state == "queued", "it waits")
        job = jobs.get(job.id)
        assert job.reason == f"compare (process {os.getpid()}) measures on cpu"
        assert job.progress == f"waiting: compare (process {os.getpid()}) measures on this device"
        assert (job.started, job.run_id) == (None, None)
        assert [one.id for one in jobs.list(state="queued")] == [job.id]
        assert jobs.wait(job.id, 0.1).state == "queued"
    job = jobs.wait(job.id)
    assert (job.state, job.exit_code) == ("done", 0)
    assert job.started is not None


def test_a_job_that_is_started_below_a_holder_goes_ahead(tmp_path: Path) -> None:
    """A program that is profiled may start jobs, and wait for them: they are part of what is measured."""
    (tmp_path / "quick.py").write_text("print('ran')")
    words = ("profile", str(tmp_path / "quick.py"))
    with DeviceLock("cpu", verb="profile"), owner(tmp_path / "home", *words) as (_, job):
        assert ended(tmp_path / "home", job).state == "done"


def test_a_job_that_waits_can_be_cancelled_and_leaves_no_run(jobs: Jobs, family: Path) -> None:
    with DeviceLock("cpu"):
        job = jobs.start(["profile", str(family)])
        until(lambda: jobs.get(job.id).state == "queued", "it waits")
        job = jobs.cancel(job.id)
    assert (job.state, job.started) == ("cancelled", None)
    assert gone(marked(job.folder))
    assert RunStore(jobs.root).list() == []


# -- cancelling ----------------------------------------------------------------------------------------------


def test_cancelling_ends_the_whole_tree_also_where_it_does_not_listen(tmp_path: Path, family: Path) -> None:
    with Jobs(tmp_path / "home", grace_s=0.5) as jobs:
        job = jobs.start(["profile", str(family), "deaf"])
        processes = [process_of(job), verb_of(job), *members(family)]
        assert all(map(alive, processes))
        job = jobs.cancel(job.id)
        assert gone(processes)
    assert (job.state, job.exit_code) == ("cancelled", -9)
    assert job.reason == f"process {os.getpid()} cancelled it"
    assert jobs.wait(job.id) == job


def test_any_process_can_cancel_and_the_owner_sees_it(jobs: Jobs, family: Path) -> None:
    job = jobs.start(["profile", str(family)])
    processes = [process_of(job), verb_of(job), *members(family)]
    with pytest.raises(TracksideError, match=r"in use by process \d+ \(trackside profile\)"):
        DeviceLock("cpu", False).__enter__()
    with Jobs(jobs.root) as others:
        seen = others.cancel(job.id[:-1])
        assert gone(processes)
    assert seen.state == "cancelled"
    assert jobs.get(job.id) == seen


def test_a_runner_that_is_stopped_does_not_keep_its_job_alive(jobs: Jobs, family: Path) -> None:
    job = jobs.start(["profile", str(family)])
    processes = [process_of(job), verb_of(job), *members(family)]
    os.kill(processes[0], signal.SIGSTOP)
    assert jobs.cancel(job.id).state == "cancelled"
    assert gone(processes)


def test_a_disk_that_takes_nothing_does_not_keep_a_job_from_being_cancelled(
    jobs: Jobs, family: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.start(["profile", str(family)])
    processes = [process_of(job), verb_of(job), *members(family)]

    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("trackside.store.jobs.write_json", refuse)
    job = jobs.cancel(job.id)
    assert (job.state, job.reason) == ("interrupted", "SIGTERM came")
    assert gone(processes)


def test_closing_ends_what_this_object_started_and_nothing_else(tmp_path: Path, family: Path) -> None:
    home = tmp_path / "home"
    with holding_process("cpu"), owner(home, "profile", str(family)) as (_, other):
        with Jobs(home, grace_s=1.0) as jobs:
            first, second = (jobs.start(["profile", str(family)]) for _ in range(2))
        assert [jobs.get(job.id).state for job in (first, second)] == ["cancelled", "cancelled"]
        assert "closed its jobs" in (jobs.get(first.id).reason or "")
        until(lambda: jobs.get(other.id).state == "queued", "the other's job waits as before")
        with pytest.raises(RuntimeError, match="closed"):
            jobs.start(["machine"])
    assert ended(home, other).state == "interrupted"


# -- deaths --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_owner_that_dies_takes_its_job_with_it(tmp_path: Path, family: Path, number: int) -> None:
    home = tmp_path / "home"
    with owner(home, "profile", str(family)) as (process, job):
        processes = [process_of(job), verb_of(job), *members(family)]
        process.send_signal(number)
        process.wait()
        job = ended(home, job)
        until(lambda: gone(processes), "all of it has ended")
    if number == signal.SIGKILL:
        assert (job.state, job.reason) == ("interrupted", "the process that started it ended")
    else:
        assert job.state == "cancelled"


def test_a_runner_that_dies_takes_the_verb_with_it_and_the_owner_ends_the_rest(
    jobs: Jobs, family: Path
) -> None:
    job = jobs.start(["profile", str(family)])
    program, own, daemon = members(family)
    processes = [process_of(job), verb_of(job), program, own]
    os.kill(processes[0], signal.SIGKILL)
    job = jobs.wait(job.id)
    assert (job.state, job.reason) == ("interrupted", "its runner was ended by signal 9")
    until(lambda: gone(processes), "all that carries the job's mark has ended")
    os.kill(daemon, signal.SIGKILL)  # the one that nobody can know of any more


def test_the_next_start_marks_what_died_with_everyone_and_ends_what_is_left(
    tmp_path: Path, family: Path
) -> None:
    home = tmp_path / "home"
    with owner(home, "profile", str(family)) as (process, job):
        program, own, daemon = members(family)
        os.kill(process.pid, signal.SIGSTOP)  # so that it does not see its runner's end
        os.kill(process_of(job), signal.SIGKILL)
        process.kill()
        process.wait()
        until(lambda: gone([program]), "the program has ended with the verb")
        assert alive(own)
        assert not (job.folder / END_FILE).exists()
        # The state is told at once, also by who only reads; a start writes it down.
        job = Jobs(home).get(job.id)
        assert job.state == "interrupted"
        assert job.ended is not None
        assert gone([own])
        os.kill(daemon, signal.SIGKILL)


def test_cancelling_what_died_with_everyone_ends_what_is_left(tmp_path: Path, family: Path) -> None:
    home = tmp_path / "home"
    with owner(home, "profile", str(family)) as (process, job):
        program, own, daemon = members(family)
        others = Jobs(home)
        os.kill(process.pid, signal.SIGSTOP)  # so that it does not see its runner's end
        os.kill(process_of(job), signal.SIGKILL)
        process.kill()
        process.wait()
        until(lambda: gone([program]), "the program has ended with the verb")
        assert alive(own)
        job = others.cancel(job.id)
        assert job.state == "cancelled"
        assert job.ended is not None
        assert gone([own])
        os.kill(daemon, signal.SIGKILL)


def test_a_runner_that_comes_up_while_it_is_looked_for_is_no_dead_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = {"pid": os.getpid(), "process": job_files.process_mark(os.getpid())}
    folder = stored(tmp_path, "j-20261118-024500-1a2b", time.time_ns())
    (folder / END_FILE).unlink()
    (folder / JOB_FILE).write_text(json.dumps({"verb": "machine", "owner": mine}))

    def come_up(pid: int) -> str:
        """The owner is asked for after the runner."""
        (folder / RUNNER_FILE).write_text(json.dumps(mine))
        return mine["process"]

    with monkeypatch.context() as patch:
        patch.setattr(job_files, "process_mark", come_up)
        assert read_job(folder).state == "queued"
    assert read_job(folder).state == "running"
    (folder / RUNNER_FILE).write_text(json.dumps(mine | {"process": "an earlier one"}))
    assert read_job(folder).state == "interrupted"


# -- many askers ---------------------------------------------------------------------------------------------


def test_fifty_threads_ask_and_wait_at_once(jobs: Jobs) -> None:
    job = jobs.start(["machine"])
    seen: list[str] = []

    def ask() -> None:
        assert jobs.get(job.id).id == job.id
        assert [one.id for one in jobs.list()] == [job.id]
        seen.append(jobs.wait(job.id, 60).state)

    threads = [threading.Thread(target=ask) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["done"] * 50


def stored(home: Path, name: str, created_ns: int, **more: Any) -> Path:
    """A job that ended some time ago."""
    folder = home / "jobs" / name
    folder.mkdir(parents=True)
    facts = {"verb": "machine", "argv": ["machine"], "created": "then", "created_ns": created_ns}
    (folder / JOB_FILE).write_text(json.dumps(facts))
    (folder / END_FILE).write_text(json.dumps({"state": "done", "exit_code": 0, "ended": "then"} | more))
    return folder


def test_a_wrong_reference_names_the_nearest_and_a_short_one_what_fits(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    with pytest.raises(TracksideError, match="no jobs in") as caught:
        jobs.get("j-2026")
    assert caught.value.kind == "not-found"
    recent = time.time_ns()
    stored(tmp_path, "j-20261118-024500-1a2b", recent)
    stored(tmp_path, "j-20261118-024500-1c3d", recent + 1)
    stored(tmp_path, "j-20251118-024500-ffff", recent + 2)
    assert jobs.get("j-20261118-024500-1a").id.endswith("1a2b")
    with pytest.raises(TracksideError, match="2 jobs start with"):
        jobs.get("j-20261118-024500-1")
    for wrong in ("j-20261118-024500-1a2c", "../jobs", "", "last", "j-2026*"):
        with pytest.raises(TracksideError) as caught:
            jobs.get(wrong)
        assert caught.value.kind == "not-found"
    with pytest.raises(TracksideError) as caught:
        jobs.cancel("j-20261118-024500-1a2c")
    assert caught.value.remedy.startswith("the nearest: j-20261118-024500-1a2b")
    assert [job.id[-4:] for job in jobs.list(limit=2)] == ["ffff", "1c3d"]


def test_ended_jobs_are_kept_for_a_fortnight_and_the_newest_two_hundred(tmp_path: Path) -> None:
    day, recent = 86_400 * 10**9, time.time_ns()
    names = [f"j-20261118-024500-{number:04x}" for number in range(203)]
    for number, name in enumerate(names):
        stored(tmp_path, name, recent + number)
    stored(tmp_path, "j-20260101-000000-0000", recent - 15 * day)
    running = stored(tmp_path, "j-20260101-000000-0001", recent - 15 * day)
    facts = json.loads((running / JOB_FILE).read_text()) | {"host": "elsewhere", "created_ns": recent}
    (running / JOB_FILE).write_text(json.dumps(facts))
    (running / END_FILE).unlink()
    (tmp_path / "jobs" / ".old-gone").mkdir()
    os.utime(tmp_path / "jobs" / ".old-gone", (0, 0))
    (tmp_path / "jobs" / ".new-now").mkdir()
    found = {job.id: job for job in Jobs(tmp_path).list()}
    assert sorted(found) == [running.name, *names[3:]]
    assert found[running.name].state == "running", "that of another machine is none of our business"
    assert "elsewhere" in (found[running.name].reason or "")
    assert sorted(path.name for path in (tmp_path / "jobs").glob(".*")) == [".new-now"]
    with pytest.raises(TracksideError, match="runs on elsewhere"):
        Jobs(tmp_path).cancel(running.name)


def test_the_newest_job_is_the_one_started_last_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    month = 30 * 86_400 * 10**9
    stored(tmp_path, "j-20301118-024500-1a2b", time.time_ns() + month)
    # More than JSON holds: its file's own time counts.
    stored(tmp_path, "j-20261118-024500-ffff", 2**64)
    with Jobs(tmp_path) as jobs:
        first, second = jobs.start(["machine"]), jobs.start(["machine"])
        for job in (first, second):
            assert jobs.wait(job.id, 60).state == "done"
        newest = [job.id for job in jobs.list(limit=3)]
        assert newest == [second.id, first.id, "j-20301118-024500-1a2b"]
    assert {job.id for job in Jobs(tmp_path).list()} >= {first.id, second.id}


# -- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--help"], ["Compare"], ["machine\0"], ["-c", "import os"], [""]])
def test_what_is_no_verb_starts_nothing(jobs: Jobs, words: list[str]) -> None:
    with pytest.raises(TracksideError) as caught:
        jobs.start(words)
    assert caught.value.kind == "usage"
    assert jobs.list() == []


def test_a_directory_that_is_none_starts_nothing(jobs: Jobs, tmp_path: Path) -> None:
    with pytest.raises(TracksideError) as caught:
        jobs.start(["machine"], cwd=tmp_path / "nowhere")
    assert caught.value.kind == "not-found"
    assert jobs.list() == []


def test_where_nothing_can_be_written_jobs_are_read_and_none_is_started(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    jobs = Jobs(tmp_path / "home")
    with pytest.raises(TracksideError) as caught:
        jobs.start(["machine"])
    assert caught.value.kind == "store"


def test_a_runner_that_cannot_work_is_a_job_that_failed(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    job = jobs.wait(jobs.start(["machine"]).id)
    assert (job.state, job.reason) == ("failed", "its runner failed with exit code 1")

    def refuse(*arguments: object) -> bool:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("trackside.store.jobs.write_end", refuse)
    job = jobs.wait(jobs.start(["machine"]).id)
    assert (job.state, job.reason) == ("failed", "it ended, and the disk did not take down how")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(TracksideError, match="no process could be started: No such file"):
        jobs.start(["machine"])


def test_where_no_process_can_be_started_the_remedy_fits(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remedy(*words: str) -> str:
        with pytest.raises(TracksideError, match="no process could be started") as caught:
            jobs.start(["machine", *words], cwd=tmp_path)
        assert jobs.list()[0].state == "failed"
        return caught.value.remedy

    assert remedy("x" * (1 << 18)) == "give it fewer or shorter arguments, or a smaller environment"
    (tmp_path / "python").write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(tmp_path / "python"))
        assert remedy() == f"see that {tmp_path / 'python'} is there and yours to use"

    def refuse(number: int, name: str | None) -> str:
        def popen(*arguments: object, **more: object) -> None:
            raise OSError(number, os.strerror(number), name)

        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", popen)
            return remedy()

    # What a folder that may not be entered is refused with, but not to root.
    assert refuse(errno.EACCES, str(tmp_path)) == f"see that {tmp_path} is there and yours to use"
    assert "ulimit -n" in refuse(errno.EMFILE, None)
    assert refuse(errno.EAGAIN, None) == "free memory or end processes"


def test_files_that_make_no_sense_are_no_reason_not_to_answer(tmp_path: Path) -> None:
    """The programs that are profiled may write to all of them."""
    folder = stored(tmp_path, "j-20261118-024500-1a2b", time.time_ns())
    (folder / NOTE_FILE).write_text('{"runs": [7, ["\\u001b[2J", "x"]], "started": 3, "state": []}')
    (folder / LOG_FILE).write_bytes(b"\xff\x00 99%\r 100%\r\n\n" + b"y" * 300 + b"\r\n")
    job = Jobs(tmp_path).get(folder.name)
    assert (job.state, job.run_id, job.started) == ("done", r"\x1b[2J", None)
    assert job.progress == "y" * 200
    assert Jobs(tmp_path).log(folder.name) == ["\ufffd\\x00 99%", " 100%", "y" * 300]
    assert Jobs(tmp_path).log(folder.name, 1) == ["y" * 300]
    assert Jobs(tmp_path).log(folder.name, 0) == []
    (folder / JOB_FILE).write_text("{")
    (folder / END_FILE).write_text('{"state": "fine"}')
    assert Jobs(tmp_path).get(folder.name).state == "failed"
    assert "cannot read" in (Jobs(tmp_path).get(folder.name).reason or "")


def test_a_log_that_grows_without_end_is_cut_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_process, "_LOG_BYTES", 1000)
    monkeypatch.setattr(job_process, "_LOG_KEPT_BYTES", 100)
    log = tmp_path / LOG_FILE
    with log.open("ab", buffering=0) as writer:
        for number in range(100):
            writer.write(f"line {number:4}\n".encode())
        job_process._cut(log)
        assert log.read_bytes().count(b"\n") == 100, "not yet"
        writer.write(b"line  100\n")
        job_process._cut(log)
        writer.write(b"the next\n")
    lines = log.read_text().splitlines()
    assert lines[0].startswith("[the log grew past")
    assert lines[-3:] == ["line   99", "line  100", "the next"]
    assert len(lines) < 15


# -- killed at random ----------------------------------------------------------------------------------------

ROUNDS = 60


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_whoever_is_killed_and_whenever_no_process_is_left_and_every_job_has_an_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Moments from before the job is made to long after its program is up."""
    rng = random.Random(20261118)
    kinds = ("owner", "runner", "verb", "program", "owner and runner")
    killed: dict[str, int] = dict.fromkeys(kinds, 0)
    states: dict[str, int] = {}
    for number in range(ROUNDS):
        kind, place = kinds[number % len(kinds)], tmp_path / str(number)
        place.mkdir()
        (place / "family.py").write_text(FAMILY)
        home = place / "home"
        command = [sys.executable, "-c", OWNER, str(home), "profile", str(place / "family.py")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            time.sleep(rng.uniform(0.0, 1.5))
            for pid in victims(kind, process.pid, home):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed[kind] += 1
            time.sleep(rng.uniform(0.0, 0.3))
            process.kill()
        # What was made half stays hidden; what can be seen is whole.
        found = Jobs(home).list()
        assert len(found) <= 1
        for job in found:
            # Where the runner lives it takes its time, and writes the end; where not, a start does.
            until((job.folder / END_FILE).exists, f"round {number} ({kind}): it has an end")
            state = Jobs(home).get(job.id).state
            states[state] = states.get(state, 0) + 1
            until(partial(unmarked, job.folder), f"round {number} ({kind}): no process is left")
            assert not [path for path in job.folder.iterdir() if path.name.startswith(f".{END_FILE}")]
        if (place / "family").exists():
            left = [pid for pid in members(place / "family.py") if alive(pid)]
            # Only the daemon, which carries no mark, and only where the one that had adopted it was killed.
            assert not left or ("runner" in kind and len(left) == 1), (number, kind, left)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
    with capsys.disabled():
        print(f"\n{ROUNDS} rounds; processes killed: {killed}; ends of {sum(states.values())} jobs: {states}")
    assert min(killed.values()) > 0
    assert set(states) <= {"interrupted", "failed", "done"}


COMPARED = """
import torch
def inputs(seed, device):
    return (torch.randn(64, 64, generator=torch.Generator(device).manual_seed(seed)),)
def run(a):
    return a @ a
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_comparison_that_is_killed_or_cancelled_at_any_moment_leaves_no_worker_and_a_run_that_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its workers carry no mark of the job; they have a supervisor of their own."""
    rng = random.Random(7)
    (tmp_path / "a.py").write_text(COMPARED)
    home = tmp_path / "home"
    counts: dict[str, int] = {}
    with Jobs(home) as jobs:
        for number in range(16):
            kind = ("runner", "verb", "owner", "cancel")[number % 4]
            words = ["compare", "--quick", "--budget", "10", "a.py", "a.py"]
            with ExitStack() as stack:
                if kind == "owner":
                    words[-2:] = [str(tmp_path / "a.py")] * 2
                    process, job = stack.enter_context(owner(home, *words))
                else:
                    job = jobs.start(words, cwd=tmp_path)
                # Some before it has workers, most while they are timed.
                time.sleep(rng.uniform(1.0, 8.0))
                tree = job_process._below(process_of(job))
                if kind == "cancel":
                    jobs.cancel(job.id)
                    assert gone(tree)
                else:
                    victim = {"runner": process_of, "verb": verb_of}.get(kind)
                    os.kill(victim(job) if victim is not None else process.pid, signal.SIGKILL)
                job = Jobs(home).wait(job.id, 60)
                until(partial(gone, tree), f"round {number} ({kind}): {len(tree)} processes have ended")
            name = f"{kind}: {job.state}, {(len(tree) > 3 and 'with workers') or 'before workers'}"
            counts[name] = counts.get(name, 0) + 1
            if job.run_id is not None:
                until(
                    partial(is_told, home, job.run_id), f"round {number} ({kind}): the run is not under way"
                )
    with capsys.disabled():
        print(f"\n16 comparisons: {counts}")
    assert sum(n for name, n in counts.items() if "with workers" in name) >= 8
    with DeviceLock("cpu", False):
        pass


def is_told(home: Path, run_id: str) -> bool:
    (state,) = [run.state for run in RunStore(home).list() if run.id == run_id]
    return state in ("failed", "died", "done")


def unmarked(folder: Path) -> bool:
    return not marked(folder)


def victims(kind: str, owner: int, home: Path) -> list[int]:
    """Those of the kind that are there at this moment; perhaps none."""
    lines: dict[int, bytes] = {}
    for folder in (home / "jobs").glob("j-*"):
        for pid in marked(folder):
            with suppress(OSError):
                lines[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
    fitting: dict[str, Callable[[bytes], bool]] = {
        "runner": lambda line: b"job_process" in line,
        "verb": lambda line: b"__main__.py" in line,
        "program": lambda line: b"family.py" in line and b"trackside" not in line,
    }
    chosen = [
        pid for name, fits in fitting.items() if name in kind for pid, line in lines.items() if fits(line)
    ]
    return [*chosen, *([owner] if "owner" in kind else [])]


def _came_along(root: Path, outside: Path) -> Path:
    """A job's folder as a download may bring it: its files are links to files elsewhere."""
    folder = root / "jobs" / "j-20300101-000000-abcd"
    folder.mkdir(parents=True)
    facts = {"verb": "profile", "argv": ["canary"], "created": "2030", "host": None}
    (outside / "facts.json").write_text(json.dumps(facts))
    (outside / "key").write_text("canary of a private key\n")
    return folder


def test_no_file_of_a_job_is_followed_out_of_its_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = _came_along(tmp_path / "store", outside)
    (folder / LOG_FILE).symlink_to(outside / "key")
    for name in (JOB_FILE, NOTE_FILE, END_FILE, "stdout.json"):
        (folder / name).symlink_to(outside / "facts.json")
    with Jobs(tmp_path / "store") as jobs:
        assert jobs.log(folder.name) == []
        assert jobs.result(folder.name) is None
        job = jobs.get(folder.name)
    assert "canary" not in str(job)
    assert (job.verb, job.progress) == ("unknown", "")


def test_a_jobs_folder_that_is_a_link_is_no_job(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = _came_along(tmp_path / "elsewhere", outside)
    (folder / JOB_FILE).write_bytes((outside / "facts.json").read_bytes())
    (tmp_path / "store" / "jobs").mkdir(parents=True)
    (tmp_path / "store" / "jobs" / folder.name).symlink_to(folder)
    with Jobs(tmp_path / "store") as jobs:
        assert jobs.list() == []


def test_a_pipe_in_a_jobs_place_keeps_nobody_waiting(tmp_path: Path) -> None:
    folder = _came_along(tmp_path / "store", tmp_path)
    os.mkfifo(folder / LOG_FILE)
    os.mkfifo(folder / JOB_FILE)
    with Jobs(tmp_path / "store") as jobs:
        assert jobs.get(folder.name).state == "failed"
        assert jobs.log(folder.name) == []
