"""`trackside watch` as the real program: what a person or an assistant sees while files change."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.processes import gone, until
from tests.suite.projects import BASELINE, RIGHT, WRONG, project

from trackside.machine.facts import facts
from trackside.store.lock import DeviceLock
from trackside.store.runs import RunStore
from trackside.suite.child import Child
from trackside.suite.quiet import Quiet, lock_key
from trackside.suite.suite_file import Entry, load_suite
from trackside.suite.watch import Timing, WatchOptions, _exit_code, _restore, _Watch, _Work, run_watch
from trackside.suite.watch_status import Item, sentence
from trackside.workload.supervisor import descendants

Trackside = Callable[..., subprocess.CompletedProcess[str]]

SUITE = '[suite]\nbudget = 5\n[workload.softmax]\nbaseline = "base.py"\ncandidate = "fused.py"\n'
MORE = SUITE + '[workload.other]\nbaseline = "base.py"\ncandidate = "other.py"\n'


def _as_at_a_terminal() -> None:
    """Let Ctrl-C do what it does there: what runs in a shell's background has it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Watch:
    """A watch under way: its events as they come."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []
        command = [sys.executable, "-m", "trackside", "watch", "--events", *arguments]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, text=True, preexec_fn=_as_at_a_terminal
        )

    def next(self, kind: str, name: str | None = None) -> dict[str, Any]:
        """The next event of a kind; what comes before is kept in `events`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            self.events.append(event)
            if event["event"] == kind and name in (None, event["name"]):
                return event
        raise AssertionError(f"no {kind}: {self.events}")

    def kinds(self) -> list[str]:
        return [event["event"] for event in self.events]

    def replace(self, name: str, source: str) -> None:
        """As an editor saves: another file takes the place."""
        temporary = self.folder / f"{name}.tmp~"
        temporary.write_text(source)
        os.replace(temporary, self.folder / f"{name}.py")

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, list[int]]:
        """Ctrl-C: the exit code, and the processes that were below it."""
        family = descendants(self.process.pid)
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode, family


@pytest.fixture
def watch(tmp_path: Path, home: Path) -> Iterator[Callable[..., Watch]]:
    made: list[Watch] = []

    def start(*arguments: str) -> Watch:
        made.append(Watch(tmp_path, *arguments))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        if one.process.stdout is not None:
            one.process.stdout.close()


def status(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "watch" / "status.json").read_text())
    return found


def test_a_wrong_candidate_is_told_by_row_while_typing_and_an_end_leaves_nothing(
    watch: Callable[..., Watch], tmp_path: Path, home: Path
) -> None:
    project(tmp_path, SUITE, base=BASELINE, fused=WRONG, unused="")
    running = watch("--timing", "never")
    line = running.next("checked")["line"]
    assert line.startswith("fused.py: rejected, output differs on row 3 (")
    assert status(home)["items"][0]["line"] == line
    # Half-written: said with its line, and what was known is kept.
    running.replace("fused", RIGHT + "def broken(:\n")
    broken = running.next("broken")
    assert "fused.py: broken, fused.py:6: a syntax error" in broken["line"]
    assert "before that: rejected" in broken["line"]
    # Its child is under way when the next change comes: it is ended, and nothing of it is reported.
    running.replace("fused", RIGHT)
    running.next("checking")
    running.replace("fused", RIGHT + "# again\n")
    cancelled = running.next("cancelled")
    assert "its files changed" in cancelled["line"]
    (tmp_path / "unused.py").write_text("x = 1")
    assert running.next("checked")["item"]["state"] == "right"
    assert running.kinds().count("checked") == 2
    code, family = running.end()
    assert code == 0
    until(lambda: gone(family), "the end of everything", 20)
    assert status(home)["state"] == "ended"
    # Nothing of untimed work is in the store.
    assert sorted(path.name for path in (home / "watch").iterdir()) == ["lock", "status.json"]
    assert RunStore(home).count() == 0


@pytest.mark.slow
def test_once_evaluates_what_is_stale_and_only_that(trackside: Trackside, tmp_path: Path, home: Path) -> None:
    project(tmp_path, SUITE, base=BASELINE, fused=WRONG)
    first = trackside("watch", "--once", "--timing", "never", "--json")
    assert first.returncode == 1, first.stderr
    (item,) = json.loads(first.stdout)["items"]
    assert item["state"] == "rejected"
    again = trackside("watch", "--once", "--timing", "never")
    assert again.returncode == 1
    assert "checking" not in again.stdout
    # What decided the exit code is said all the same.
    assert "known: fused.py: rejected, output differs on row 3" in again.stdout
    # Of the kernel's and the clock's, both see a change of what is imported; here none ran meanwhile.
    (tmp_path / "fused.py").write_text("import helper\nrun = helper.run\n")
    (tmp_path / "helper.py").write_text("def run(x):\n    return missing\n")
    broken = trackside("watch", "--once", "--timing", "never", "--polling")
    assert broken.returncode == 1
    assert "checking" in broken.stdout


@pytest.mark.slow
def test_what_could_not_be_used_is_tried_again_by_the_next_watch(
    trackside: Trackside, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, SUITE, base=BASELINE, fused="from soft import run\n")
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "soft.py").write_text(RIGHT)
    first = trackside("watch", "--once", "--timing", "never")
    assert first.returncode == 1
    assert "import of `soft`" in first.stdout
    # Nothing of the workload's own changed: it is as if the module was installed meanwhile.
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert trackside("watch", "--once", "--timing", "never").returncode == 0


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ({"verdict": "right", "reasons": []}, True),
        ({"verdict": "rejected", "reasons": ["output-matches-oracle: call 1"]}, True),
        ({"verdict": "rejected", "reasons": ["worker-survives: killed by signal 9"]}, False),
        ({"verdict": "error", "reasons": ["memory: found 1 GB"]}, False),
    ],
)
def test_only_what_a_candidate_itself_decides_is_remembered(found: dict[str, Any], kept: bool) -> None:
    item = Item(Entry("a", "baseline", Path("b.py"), Path("c.py")))
    _restore(item, {"correctness": {"digest": "d", **found}})
    assert (item.correctness is not None) is kept


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_newer_change_does_not_wait_for_a_candidate_that_hangs(
    watch: Callable[..., Watch], tmp_path: Path, home: Path
) -> None:
    project(tmp_path, MORE, base=BASELINE, fused="import time\ntime.sleep(600)\n" + RIGHT, other=RIGHT)
    running = watch("--timing", "never")
    running.next("checked", "other")
    running.next("checking", "softmax")
    running.replace("other", WRONG)
    assert "a newer change waits" in running.next("cancelled", "softmax")["line"]
    assert running.next("checked")["line"].startswith("other.py: rejected, output differs on row 3")
    # It is not forgotten, and nothing newer is there to end it again.
    running.next("checking", "softmax")
    code, family = running.end()
    assert code == 0
    until(lambda: gone(family), "the end of everything", 20)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--timing", "sometimes"], "quiet, always, never"),
        (["--json"], "--once --json"),
        (["--once", "--json", "--events"], "--events"),
        (["--only", "softmix"], "softmax"),
    ],
)
def test_wrong_use_of_watch_is_2(
    trackside: Trackside, tmp_path: Path, arguments: list[str], word: str
) -> None:
    project(tmp_path, SUITE, base=BASELINE, fused=RIGHT)
    done = trackside("watch", *arguments)
    assert done.returncode == 2
    assert word in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["watchfiles", "polling"])
def test_imports_suites_and_hundreds_of_files_are_followed(
    watch: Callable[..., Watch], tmp_path: Path, home: Path, how: str
) -> None:
    helper = RIGHT
    fused = "from kernels.soft import run\n"
    project(tmp_path, MORE, base=BASELINE, fused=fused, other=RIGHT)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "soft.py").write_text(helper)
    running = watch("--timing", "never", *(["--polling"] if how == "polling" else []))
    assert running.next("watching")["line"].endswith(how)
    for name in ("other", "softmax"):
        assert running.next("checked", name)["item"]["state"] == "right"
    # Only what imports it is affected.
    (tmp_path / "kernels" / "soft.py").write_text(WRONG)
    changed = running.next("changed")
    assert changed["line"] == "affected: softmax"
    assert running.next("checked", "softmax")["item"]["state"] == "rejected"
    # Deleted and made again, and hundreds of files at once.
    (tmp_path / "other.py").unlink()
    assert "other.py is missing" in running.next("broken", "other")["line"]
    for number in range(400):
        (tmp_path / f"f{number}.py").write_text(f"x = {number}\n")
    (tmp_path / "other.py").write_text(WRONG)
    assert running.next("checked", "other")["item"]["state"] == "rejected"
    # The newest change goes first.
    (tmp_path / "base.py").write_text(BASELINE + "\n")
    checking = running.next("checking")
    assert checking["name"] in ("softmax", "other")
    # An error in the suite keeps the old one; then it shrinks.
    (tmp_path / "trackside.toml").write_text(MORE.replace("budget = 5", "budgot = 5"))
    said = running.next("suite-error")["line"]
    assert "trackside.toml:2" in said
    assert "did you mean `budget`?" in said
    assert "budgot" in status(home)["error"]
    (tmp_path / "trackside.toml").write_text(SUITE)
    running.next("suite")
    assert running.next("checked", "softmax")["item"]["state"] == "rejected"
    assert [item["name"] for item in status(home)["items"]] == ["softmax"]
    assert status(home)["error"] is None
    code, family = running.end()
    assert code == 0
    until(lambda: gone(family), "the end of everything", 20)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_timing_is_cancelled_by_a_change_and_what_is_finished_is_a_run(
    watch: Callable[..., Watch], tmp_path: Path, home: Path
) -> None:
    project(tmp_path, MORE, base=BASELINE, fused=RIGHT, other=RIGHT)
    running = watch("--timing", "always")
    for name in ("other", "softmax"):
        running.next("checked", name)
    timing = running.next("timing")
    # Another file's change ends it too: correctness comes first, and a timing beside it is worth nothing.
    other = "fused" if timing["name"] == "other" else "other"
    running.replace(other, RIGHT + "# changed\n")
    assert "correctness comes first" in running.next("cancelled")["line"]
    running.next("checked")
    timed = {running.next("timed")["name"] for _ in range(2)}
    assert timed == {"softmax", "other"}
    items = status(home)["items"]
    runs = {summary.id: summary for summary in RunStore(home).list(verb="compare")}
    for item in items:
        assert runs[item["timing"]["run_id"]].state == "done"
        assert item["timing"]["verdict"] in item["line"]
    code, family = running.end()
    assert code == 0
    until(lambda: gone(family), "the end of everything", 20)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_second_watch_is_told_of_the_first_and_a_killed_one_takes_its_children_along(
    watch: Callable[..., Watch], trackside: Trackside, tmp_path: Path, home: Path
) -> None:
    project(tmp_path, SUITE, base=BASELINE, fused="import time\ntime.sleep(600)\n" + RIGHT)
    running = watch("--timing", "never")
    running.next("checking")
    done = trackside("watch", "--once", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["kind"] == "busy"
    until(lambda: len(descendants(running.process.pid)) >= 3, "its workers")
    family = descendants(running.process.pid)
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    until(lambda: gone(family), "the end of everything", 30)
    # The next one is not kept out by a dead one's lock.
    (tmp_path / "fused.py").write_text(RIGHT)
    assert trackside("watch", "--once", "--timing", "never").returncode == 0


@pytest.mark.parametrize(
    ("verdicts", "timing", "code"),
    [
        (["right"], "never", 0),
        (["right", "undecided"], "never", 4),
        (["right", "not-comparable"], "never", 3),
        (["right", "error"], "never", 2),
        (["right", "rejected"], "never", 1),
        (["right", None], "never", 4),
        (["right", "not-comparable"], "quiet", 4),
        ([], "never", 0),
    ],
)
def test_what_is_right_and_not_to_be_timed_hides_nothing_that_is_not(
    verdicts: list[str | None], timing: Timing, code: int
) -> None:
    items = [
        Item(Entry("a", "baseline", Path("b.py"), Path("c.py")), digest="d", correctness=known)
        for known in (verdict and {"digest": "d", "verdict": verdict, "reasons": []} for verdict in verdicts)
    ]
    assert _exit_code(items, timing) == code


def test_after_an_upgrade_or_on_another_machine_what_was_known_is_stale(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Broken, so that no child is needed to see what its results would be about.
    suite = project(tmp_path, SUITE, base=BASELINE, fused="def broken(:\n")

    def digest() -> str:
        document, _ = run_watch(WatchOptions(suite, timing="never", once=True, store=home))
        return str(document["items"][0]["digest"])

    first, here = digest(), facts()
    assert digest() == first
    upgraded = replace(here, software=replace(here.software, torch="9.9"))
    for other in (upgraded, replace(here, kernel="another")):
        with monkeypatch.context() as patch:
            patch.setattr("trackside.suite.watch.machine_facts", lambda other=other: other)
            assert digest() != first
    monkeypatch.setattr("trackside.__version__", "9.9")
    assert digest() != first


def test_a_held_device_keeps_only_its_own_workloads_waiting(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = tmp_path / "locks"
    locks.mkdir(mode=0o700)
    monkeypatch.setattr("trackside.store.lock._lock_folder", lambda: locks)
    text = (
        '[workload.alone]\nfile = "fused.py"\nreference = "base.py"\n'
        '[workload.held]\nbaseline = "base.py"\ncandidate = "fused.py"\ndevice = "cuda"\n'
    )
    suite = load_suite(project(tmp_path, text, base=BASELINE, fused=RIGHT))
    options = WatchOptions(suite.path, store=home)
    scratch = tmp_path / "scratch"
    watch = _Watch(options, suite, RunStore(home), scratch, lambda event, status: None)
    clock = count(step=10)
    watch._quiet = Quiet(tmp_path, lambda: float(next(clock)))
    try:
        watch._look()
        alone, held = watch.status.items.values()
        for item in (alone, held):
            item.correctness = {"digest": item.digest, "verdict": "right", "reasons": []}
        assert held.turn > alone.turn
        with DeviceLock(lock_key("cuda"), verb="compare"):
            # Nothing is accepted: known without a child.
            assert watch._start_next()
        assert "in use" in (held.waits or "")
        assert alone.state == "not-comparable"
    finally:
        watch.close()


def test_a_store_that_is_deleted_meanwhile_does_not_end_the_watch(tmp_path: Path, home: Path) -> None:
    suite = load_suite(project(tmp_path, SUITE, base=BASELINE, fused=RIGHT))
    options = WatchOptions(suite.path, store=home)
    watch = _Watch(options, suite, RunStore(home), tmp_path / "gone", lambda event, status: None)
    try:
        watch._look()
        (item,) = watch.status.items.values()
        with Child(["-c", "print('{}')"]) as child:
            ended = child.wait(60)
            assert ended is not None
            watch._harvest(_Work(item, "checking", item.digest, child), ended)
        assert item.state == "error"
    finally:
        watch.close()


def test_two_workloads_of_one_file_are_told_apart(tmp_path: Path, home: Path) -> None:
    suite = SUITE + MORE.removeprefix(SUITE).replace("other.py", "fused.py")
    project(tmp_path, suite, base=BASELINE, fused=RIGHT)
    options = WatchOptions(tmp_path / "trackside.toml", timing="never", store=tmp_path / "store")
    watch = _Watch(options, load_suite(options.suite), RunStore(options.store), tmp_path, lambda e, s: None)
    watch._changes.close()
    lines = [item.line for item in watch.status.items.values()]
    assert lines == ["fused.py (softmax): waits for its turn", "fused.py (other): waits for its turn"]


def test_on_a_terminal_a_new_size_and_ctrl_c_leave_one_true_status(tmp_path: Path, home: Path) -> None:
    project(tmp_path, SUITE, base=BASELINE, fused="def run(x:\n")
    ours, theirs = pty.openpty()
    _resize(ours, 20, 70)
    command = [sys.executable, "-m", "trackside", "watch", "--timing", "never"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        | {"TERM": "xterm-256color"},
        preexec_fn=_at_its_own_terminal,
    )
    os.close(theirs)
    said = b""
    try:
        said = _read_until(ours, said, lambda text: text is not None and text.count(b"a syntax error") >= 2)
        _resize(ours, 40, 120)
        # An empty line is as wide as the terminal now.
        said = _read_until(ours, said, lambda text: text is not None and b" " * 120 + b"\r\n" in text)
        os.write(ours, b"\x03")
        said = _read_until(ours, said, lambda text: text is None)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    # It had a screen of its own; on the ordinary one the last status stands once.
    _, _, live = said.partition(b"\x1b[?1049h")
    _, left, rest = live.partition(b"\x1b[?1049l")
    assert left
    assert rest.count(b"watched until now") == 1
    assert b"the watch has ended" in rest
    assert b"watching" not in rest


def _at_its_own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _as_at_a_terminal()


def _resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _read_until(terminal: int, said: bytes, done: Callable[[bytes | None], bool]) -> bytes:
    """All that is said until it is enough; the predicate gets None at the end, else what is new."""
    new = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            part = b""
        new += part
        if done(new if part else None):
            return said + new
        assert part, said + new


def test_a_reason_becomes_a_sentence_about_a_row() -> None:
    reason = "output-matches-oracle: call 54, out['y'][3, 12]: expected 1.5, found -2.5 (error 3 times)"
    assert sentence([reason]) == "output differs on row 3 (out['y'][3, 12]: expected 1.5, found -2.5)"
    assert sentence(["worker-survives: the candidate raised"]) == "worker-survives: the candidate raised"
    assert sentence([]) == "no reason given"


@pytest.mark.parametrize(
    ("verdict", "status", "line"),
    [
        ("slower", "failed", "c.py: right, slower 0.551× [0.538, 0.564], claim `faster` FAILS"),
        (
            "not-comparable",
            "not-comparable",
            "c.py: not-comparable, baseline-undisturbed: 862 µs, 653 µs alone",
        ),
    ],
)
def test_what_cannot_be_compared_is_told_with_its_reason_and_without_a_figure(
    verdict: str, status: str, line: str
) -> None:
    timing = {
        "digest": "d",
        "verdict": verdict,
        "status": status,
        "claim": "faster",
        "change": {"ratio": 0.551, "low": 0.538, "high": 0.564},
        "reasons": ["baseline-undisturbed: 862 µs, 653 µs alone"],
    }
    right = {"digest": "d", "verdict": "right", "reasons": []}
    item = Item(
        Entry("a", "baseline", Path("b.py"), Path("c.py")), digest="d", correctness=right, timing=timing
    )
    assert item.line == line
