"""Candidates that reach for other processes, memory and files, and what they leave behind."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.comparison.judged import PASSES, Judged, seen_before_the_sweep

from trackside.comparison.measure import used_beside
from trackside.comparison.trial import Crew

# Worker, template, supervisor, judge: each the parent of the one before.
_ANCESTORS = """
def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

worker = os.getpid()
template = parent(worker)
supervisor = parent(template)
judge = parent(supervisor)
"""


def confined(result: Judged) -> bool:
    return any(c["id"] == "isolation" and c["status"] == "pass" for c in result.record["checks"])


def test_neither_memory_nor_files_of_judge_and_reference_can_be_read(
    judge: Callable[..., Judged], tmp_path: Path
) -> None:
    secret = tmp_path / "store" / "secret"
    secret.parent.mkdir()
    secret.write_text("the seeds")
    result = judge(
        _ANCESTORS
        + f"""
siblings = [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != worker]
family = [p for p in siblings if p in (template, supervisor, judge) or Path(f"/proc/{{p}}/stat").exists()
          and parent(p) in (template, supervisor)]
leaks = []
def attempt(what, action):
    try:
        action()
        leaks.append(what)
    except OSError:
        pass
for pid in family:
    for name in ("mem", "environ", "maps", "auxv", "fd/3", "cwd/", "root/etc"):
        attempt(f"{{name}} of {{pid}}", lambda: os.open(f"/proc/{{pid}}/{{name}}", os.O_RDONLY))
# A process that has ended has an empty `maps`, which anyone may open.
def empty(leak):
    return leak.startswith("maps") and not Path(f"/proc/{{leak.split()[-1]}}/maps").read_text()
leaks = [leak for leak in leaks if not empty(leak)]
attempt("store", lambda: open({str(secret)!r}))
attempt("store's folder", lambda: os.listdir({str(secret.parent)!r}))
attempt("other arm's folder", lambda: os.listdir(Path(os.environ["TMPDIR"]).parent.parent / "baseline"))
attempt("run's folder", lambda: os.listdir(Path(os.environ["TMPDIR"]).parent.parent))
assert len(family) >= 4, family
if leaks:
    raise RuntimeError(f"LEAK {{leaks}}")
"""
    )
    if not confined(result):
        pytest.skip("this kernel lacks namespaces or Landlock")
    assert (result.verdict, result.failed) == (PASSES, []), result.reason


def test_a_candidate_that_kills_everyone_kills_no_one(judge: Callable[..., Judged]) -> None:
    first = judge("")
    if not confined(first):
        pytest.skip("without Landlock's signal scope this would end the whole session")
    # Signal 0 asks first, of every process: only when none can be reached is the real one sent.
    result = judge(
        _ANCESTORS
        + """
def reachable(pid):
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return pid != worker
if any(reachable(int(p)) for p in os.listdir("/proc") if p.isdigit()):
    raise RuntimeError("a process outside can be signalled")
os.kill(-1, signal.SIGKILL)
def run(x):
    for pid in (-1, judge, supervisor, template):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            try:
                os.kill(pid, number)
            except OSError:
                pass
    return honest(x)
"""
    )
    assert (result.verdict, result.failed) == (PASSES, []), result.reason


RENAMED = "ctypes.CDLL(None).prctl(15, b'\\xff) R 1')"
"""The process calls itself something that is no UTF-8 and looks like other fields of /proc/PID/stat."""

FORKS = {
    "children": "[os.fork() or time.sleep(600) for _ in range(20)]",
    "daemons": """
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    os.wait()
""",
    "programs": "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)",
    "daemon-whose-name-is-no-text": f"""
if os.fork() == 0:
    {RENAMED}
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
""",
    "stopped-children": "if os.fork() == 0:\n    os.kill(os.getpid(), signal.SIGSTOP)",
}


@pytest.mark.parametrize("name", FORKS)
def test_what_a_candidate_forks_does_not_outlive_its_trial(judge: Callable[..., Judged], name: str) -> None:
    result = judge(FORKS[name])
    assert result.error is None
    assert result.verdict in (PASSES, "not-comparable", "rejected")


def test_a_daemon_of_the_candidate_counts_as_a_stranger(crew: Crew, judge: Callable[..., Judged]) -> None:
    """It has a template's command line and, by adoption, a template's parent: it must not pass for one."""
    with seen_before_the_sweep(crew) as seen:
        judge(FORKS["daemons"])
        assert len(seen) == 5
        judge(FORKS["daemon-whose-name-is-no-text"])
        assert len(seen) == 6


def test_a_candidate_whose_name_is_no_text_is_judged_like_any_other(judge: Callable[..., Judged]) -> None:
    result = judge(RENAMED)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


HOPS = """
if os.fork() == 0:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if os.fork(): os._exit(0)
        {hop}
os.wait()
time.sleep(1)
"""


@pytest.mark.parametrize("hop", ["pass", "os.setsid()"])
def test_processes_that_start_the_next_and_end_are_counted_and_ended(
    hop: str, crew: Crew, judge: Callable[..., Judged]
) -> None:
    """Looked for one by one in /proc they are hardly ever found."""
    seen: list[int] = []
    sweep = crew.fleet.sweep

    def look() -> None:
        crew.fleet.strangers([])
        seen.append(crew.fleet.ended)
        sweep()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew.fleet, "sweep", look)
        judge("")
        judge(HOPS.format(hop=hop))
    assert seen[1] - seen[0] > 50_000_000


def test_a_process_whose_first_thread_has_ended_is_alive(crew: Crew, judge: Callable[..., Judged]) -> None:
    """The kernel calls it a zombie; its other threads work on."""
    with seen_before_the_sweep(crew) as seen:
        judge(
            """
if os.fork() == 0:
    if os.fork(): os._exit(0)
    threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()
    time.sleep(0.05)
    ctypes.CDLL(None).syscall(60, 0)
os.wait()
time.sleep(0.5)
"""
        )
    assert len(seen) == 1


def test_a_helper_that_has_itself_woken_while_frozen_is_found_out(
    judge: Callable[..., Judged], crew: Crew
) -> None:
    from trackside.comparison import trial

    ran: list[int] = []
    worked: list[int] = []

    def look(bench: Any, study: Any) -> list[str]:
        process = bench.arms["candidate"].process
        strangers = [bench.strangers()]
        time.sleep(0.3)
        strangers.append(bench.strangers())
        worked.append(used_beside(*strangers, ended=0))
        for _ in range(20):
            process.freeze()
            time.sleep(0.1)
            process.thaw()
        ran.append(sum(process.ran_frozen))
        return []

    asleep = "if os.fork() == 0:\n    time.sleep(600)\n"
    # What takes a lock comes before the fork: another thread may hold it, and the child would wait for good.
    waking = """
libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
create, start = libc.timer_create, libc.timer_settime
event = struct.pack("<qii", 0, signal.SIGCONT, 0) + bytes(48)
every = struct.pack("<qqqq", 0, 5_000_000, 0, 5_000_000)
if os.fork() == 0:
    signal.signal(signal.SIGCONT, lambda *_: None)
    create(1, event, ctypes.byref(timer))
    start(timer, 0, every, None)
    while True:
        time.sleep(0.03)
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until: pass
"""
    # A child that hangs all the same has used its moment of CPU time by then: only one that was woken counts.
    for candidate in (asleep, waking, waking, waking):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trial, "probe", look)
            # As on a kernel without the filter, which refuses timers.
            patch.setattr(crew.fleet, "_unprotected", ["seccomp"])
            judge(candidate)
        if ran[-1] > 3_000_000:
            break
    assert worked[0] < 1_000_000 < worked[-1]
    assert ran[0] < 3_000_000 < ran[-1]


def test_a_file_in_place_of_the_candidate_s_own_folder_is_replaced(judge: Callable[..., Judged]) -> None:
    result = judge(
        "import shutil; home = os.environ['HOME']; shutil.rmtree(home, True); open(home, 'a').close()"
    )
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


def test_a_process_woken_while_frozen_is_found_out(judge: Callable[..., Judged]) -> None:
    """A helper that sends SIGCONT lets the candidate disturb the other arm's slots."""
    from trackside.comparison import trial

    ran: list[int] = []
    orphans: list[int] = []

    def look(bench: Any, study: Any) -> list[str]:
        process = bench.arms["candidate"].process
        bench.fleet.strangers([*(arm.process for arm in bench.arms.values()), bench.reference])
        orphans.append(len(bench.fleet.orphans))
        for _ in range(9):
            process.freeze()
            time.sleep(0.1)
            process.thaw()
        ran.append(sum(process.ran_frozen))
        return []

    spin = "threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()\n"
    wake = """
worker = os.getpid()
if os.fork() == 0:
    while True:
        time.sleep(0.005)
        os.kill(worker, signal.SIGCONT)
"""
    orphan = wake.replace("if os.fork() == 0:", "if os.fork() == 0:\n    if os.fork(): os._exit(0)")
    for candidate in (spin, wake + spin, orphan + spin):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trial, "probe", look)
            judge(candidate)
    frozen, stopped_with_its_child, woken = ran
    assert frozen < 5_000_000
    assert stopped_with_its_child < 5_000_000
    assert woken > 50_000_000
    assert orphans == [0, 0, 1]


@pytest.mark.slow
def test_a_candidate_that_wakes_itself_beside_the_baseline_is_not_comparable(
    judge: Callable[..., Judged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trackside.store import lock

    monkeypatch.setattr(lock, "_lock_folder", lambda: tmp_path)
    result = judge(
        """
worker = os.getpid()
if os.fork() == 0:
    if os.fork(): os._exit(0)
    while True:
        time.sleep(0.003)
        os.kill(worker, signal.SIGCONT)
def burn():
    while True:
        torch.ones(1 << 16).sum()
threading.Thread(target=burn, daemon=True).start()
""",
        checks_only=False,
        quick=True,
        budget=5.0,
    )
    assert (result.verdict, result.failed) == ("not-comparable", ["no-leftovers"])
    assert "frozen" in result.reason


@pytest.mark.parametrize(
    "folder",
    [
        "for _ in range(1500): os.mkdir('deep'); os.chdir('deep')",
        "os.mkdir('shut'); Path('shut/file').write_text('x'); os.chmod('shut', 0)",
        "os.symlink('/etc', 'link'); os.mkfifo('pipe'); os.symlink('.', 'self')",
    ],
    ids=["deep", "without-permissions", "links-and-pipes"],
)
def test_whatever_a_candidate_builds_in_its_folder_is_removed(
    judge: Callable[..., Judged], folder: str
) -> None:
    assert judge(f"os.chdir(os.environ['TMPDIR'])\n{folder}").verdict == PASSES
