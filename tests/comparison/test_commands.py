"""Pairs of commands, as real processes: what is rejected, what is certified, and what is left behind."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.processes import alive, gone

from trackside.cli import main as cli
from trackside.comparison.command_identity import identify
from trackside.comparison.command_outputs import Output, collect, compare, printed
from trackside.comparison.commands import CommandOptions, run_commands
from trackside.records.compare import CompareRecord
from trackside.records.errors import TracksideError
from trackside.report.compare_text import render
from trackside.store.runs import RunStore

PYTHON = shlex.join([sys.executable, "-I", "-S"])

# Sleep against none: the answer is the same on a busy machine.
SLOW = "import sys, time, os\ntime.sleep(0.15)\nprint('answer', int(sys.argv[1]) * 3 / 7)\n"
FAST = "import sys, os\nprint('answer', int(sys.argv[1]) * 3 / 7)\n"


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """A lock and a working folder of the test's own: another comparison on this machine must not delay it."""
    locks = tmp_path / "locks"
    locks.mkdir(mode=0o700)
    monkeypatch.setattr("trackside.store.lock._lock_folder", lambda: locks)
    # Where the verdict is not the point, one quad in each of four blocks will do.
    monkeypatch.setattr("trackside.comparison.commands._MAX_QUADS", 1)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)


@pytest.fixture
def three_quads(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each block, so that a machine that stands still for seconds spoils one of them, not the median."""
    monkeypatch.setattr("trackside.comparison.commands._MAX_QUADS", 3)


def command(name: str, source: str, *arguments: str) -> str:
    Path(name).write_text(source)
    return f"{PYTHON} {name} {' '.join(arguments)}".strip()


def judge(baseline: str, candidate: str, *outputs: str, **options: Any) -> CompareRecord:
    return run_commands(CommandOptions(baseline, candidate, outputs, **({"pairs": 4} | options)))


def shown(record: CompareRecord) -> str:
    out = io.StringIO()
    render(record.to_dict(), Console(file=out, width=200))
    return out.getvalue()


def check(record: CompareRecord, id: str) -> tuple[str, str]:
    found = next(c for c in record.checks if c.id == id)
    return found.status, found.detail


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


# -- verdicts ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("three_quads")
def test_a_faster_command_with_secret_seeds_is_certified_with_the_reservation_that_it_ran_unconfined() -> (
    None
):
    note = "open('{}', 'a').write(f\"{{sys.argv[1]}} {{os.environ['TMPDIR']}}\\n\")\n"
    record = judge(
        command("old.py", SLOW + note.format("a.log"), "{seed}"),
        command("new.py", FAST + note.format("b.log"), "{seed}"),
    )
    assert (record.verdict, record.certified, record.certificate, record.holds) == (
        "faster",
        True,
        "reduced",
        True,
    ), record.reasons
    assert record.speedup is not None
    assert record.speedup.ratio > record.speedup.low > 1.2
    assert record.speedup.metric == "wall"
    assert check(record, "output-matches-oracle")[0] == "pass"
    assert check(record, "task-is-sensitive")[0] == "pass"
    assert [reason for reason in record.reasons if "your rights" in reason] == record.reasons
    logs = {arm: [line.split() for line in Path(f"{arm}.log").read_text().splitlines()] for arm in "ab"}
    seeds = {arm: [seed for seed, _ in lines] for arm, lines in logs.items()}
    # The baseline has the first seed twice, to see that it repeats itself; later no arm meets one again.
    assert seeds["a"][0] == seeds["a"][1]
    assert len(set(seeds["a"][1:])) == len(seeds["a"][1:]) == len(seeds["b"]) == len(set(seeds["b"]))
    assert set(seeds["a"]) == set(seeds["b"])
    folders = {arm: {folder for _, folder in lines} for arm, lines in logs.items()}
    assert not folders["a"] & folders["b"]
    assert len(folders["b"]) == 1 + 4
    assert not any(Path(folder).exists() for both in folders.values() for folder in both)
    assert RunStore().load("last") == record.to_dict()
    text = shown(record)
    assert "wall time of a run" in text
    assert "4 blocks, 12 of 12 quads kept, a run a slot" in text
    assert "stdout: 25 runs compared, the same bytes" in text
    assert f"next: trackside verify {record.run_id}" in text


@pytest.mark.usefixtures("three_quads")
def test_a_slower_command_does_not_hold() -> None:
    record = judge(command("old.py", FAST, "{seed}"), command("new.py", SLOW, "{seed}"))
    assert (record.verdict, record.holds) == ("slower", False), record.reasons


@pytest.mark.usefixtures("three_quads")
def test_without_any_output_a_faster_command_is_not_certified_and_says_why() -> None:
    record = judge(command("old.py", "import time; time.sleep(0.15)"), command("new.py", "pass"))
    assert (record.verdict, record.certified, record.certificate) == ("faster", False, "none")
    assert "no --output was named" in record.reasons[0]
    assert check(record, "output-matches-oracle") == ("unknown", "there was no output to compare")
    assert "outputs are right" not in shown(record)
    assert "the times alone say so: there was no output to compare" in shown(record)


@pytest.mark.usefixtures("three_quads")
@pytest.mark.parametrize("argument", ["7", "7 {seed}"])
def test_an_answer_that_never_varies_and_a_known_seed_are_named_as_reservations(argument: str) -> None:
    record = judge(command("old.py", SLOW, argument), command("new.py", FAST, argument), seed=1, rtol=0.01)
    assert (record.verdict, record.certificate) == ("faster", "reduced")
    assert check(record, "task-is-sensitive")[0] == "warn"
    assert "a stored" in record.reasons[0]
    assert record.reasons[1] == "reservation: --seed makes the inputs foreseeable"
    assert record.reasons[2] == "reservation: --rtol lets numbers differ by 0.01 of their size"


# -- outputs -------------------------------------------------------------------------------------------------


def test_a_different_line_is_rejected_with_its_number_and_both_texts() -> None:
    record = judge(
        command("old.py", "print('head'); print('value 1.5')"),
        command("new.py", "print('head'); print('value 1.6')"),
    )
    assert (record.verdict, record.holds) == ("rejected", False)
    status, detail = check(record, "output-matches-oracle")
    assert status == "fail"
    assert detail == "stdout, line 2: expected `value 1.5`, found `value 1.6`"


def test_an_answer_that_is_right_for_the_first_seed_only_is_rejected() -> None:
    memo = (
        "import sys, pathlib\nkept = pathlib.Path('memo')\n"
        "if not kept.exists(): kept.write_text(str(int(sys.argv[1]) * 3 / 7))\n"
        "print('answer', kept.read_text())\n"
    )
    record = judge(command("old.py", FAST, "{seed}"), command("new.py", memo, "{seed}"))
    assert record.verdict == "rejected"
    assert "(seed " in check(record, "output-matches-oracle")[1]


def test_a_file_that_the_candidate_does_not_write_is_rejected() -> None:
    record = judge(command("old.py", "open('out.txt', 'w').write('x')"), command("new.py", "pass"), "out.txt")
    assert record.verdict == "rejected"
    assert "out.txt, expected a file of 1 bytes, found none" in record.reasons[0]


def test_output_files_of_before_are_hidden_from_the_commands_and_put_back() -> None:
    Path("out.txt").write_text("precious")
    refuse = "import os\nassert not os.path.exists('out.txt')\nopen('out.txt', 'w').write('1.0')\n"
    record = judge(command("old.py", refuse), command("new.py", refuse), "out.txt", quick=True, pairs=None)
    assert check(record, "output-matches-oracle")[1].startswith("out.txt: 5 of 5 agree")
    assert record.certificate == "none"
    assert Path("out.txt").read_text() == "precious"
    assert sorted(os.listdir()) == ["new.py", "old.py", "out.txt"]


def test_a_baseline_that_does_not_repeat_itself_is_inconclusive_not_the_candidates_fault() -> None:
    clock = "import time; print('took', time.time_ns())"
    record = judge(command("old.py", clock), command("new.py", "print('took 1')"))
    assert record.verdict == "inconclusive"
    assert "does not repeat itself" in record.reasons[0]


def test_a_difference_is_held_against_a_third_run_of_the_baseline() -> None:
    wavers = "import os, time\nprint(time.time_ns() if os.path.exists('seen') else 'x')\n"
    record = judge(command("old.py", wavers), command("new.py", "open('seen', 'w')\nprint('y')\n"))
    assert record.verdict == "inconclusive"
    assert "does not repeat itself" in record.reasons[0]


def test_a_folder_in_place_of_an_output_file_is_rejected_and_removed() -> None:
    Path("out.txt").write_text("precious")
    record = judge(
        command("old.py", "open('out.txt', 'w').write('x')"),
        command("new.py", "import os; os.makedirs('out.txt/deep')"),
        "out.txt",
    )
    assert record.verdict == "rejected"
    assert Path("out.txt").read_text() == "precious"


def test_the_same_seed_option_gives_the_same_inputs() -> None:
    baseline, candidate = command("old.py", FAST, "{seed}"), command("new.py", "print('answer', 0)", "{seed}")
    first, second, other = (judge(baseline, candidate, seed=seed).reasons for seed in (5, 5, 6))
    assert first == second != other


def as_output(data: bytes, name: str = "stdout") -> Output:
    file = io.BytesIO(data)
    return printed(file) if name == "stdout" else Output(name, file, len(data), str(hash(data)))


def as_npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


@pytest.mark.parametrize(
    ("expected", "found", "where"),
    [
        (b"a 1.0000000\n", b"a 1.0000001\n", None),
        (b"a 1.0000\n", b"a 1.0001\n", "line 1: expected `a 1.0000`, found `a 1.0001`"),
        (b"[1.5, -2e3]\n", b"[1.50, -2000.0]\n", None),
        (b"1000000\n", b"1000001\n", "line 1: expected `1000000`, found `1000001`"),
        (b"9000001\n", b"9000000.0\n", "line 1: expected `9000001`, found `9000000.0`"),
        (b"+7 1\n", b"7 1.0\n", None),
        (b"1e400\n", b"7e999\n", "line 1: expected `1e400`, found `7e999`"),
        (b"0.0\n", b"1e-30\n", "line 1: expected `0.0`, found `1e-30`"),
        (b"nan\n", b"0.0\n", "line 1: expected `nan`, found `0.0`"),
        (b"loss 1.0\n", b"cost 1.0\n", "line 1: expected `loss 1.0`, found `cost 1.0`"),
        (b"x\ny\n", b"x\n", "after 1 line(s): expected one more, found none: `y`"),
        (b"", b"x\n", "after 0 line(s): expected no more, found `x`"),
        (b"\xff\x00\x01", b"\xff\x00\x02", "byte 2: expected 0x01, found 0x02"),
    ],
)
def test_text_agrees_when_only_numbers_differ_and_by_little(
    expected: bytes, found: bytes, where: str | None
) -> None:
    assert compare(as_output(expected), as_output(found), 1e-6).where == where


@pytest.mark.parametrize(
    ("expected", "found", "where"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-9], None),
        ([[1.0, 2.0]], [[1.0, 2.1]], "element [0, 1]: expected 2.0, found 2.1"),
        ([1.0, np.nan], [1.0, np.nan], None),
        ([1.0, np.nan], [1.0, 0.0], "element [1]: expected nan, found 0.0"),
        ([1.0, np.inf], [1.0, 1e300], "element [1]: expected inf, found 1e+300"),
        ([1.0], [1.0, 1.0], "expected float64 (1,), found float64 (2,)"),
        (np.ones(1, np.float32), np.ones(1), "expected float32 (1,), found float64 (1,)"),
        ([1, 2], [1, 3], "element [1]: expected 2, found 3"),
    ],
)
def test_arrays_agree_within_the_tolerance_and_in_kind(expected: Any, found: Any, where: str | None) -> None:
    left, right = as_output(as_npy(expected), "o.npy"), as_output(as_npy(found) + b" ", "o.npy")
    assert compare(left, right, 1e-6).where == where


def test_an_output_stays_as_it_was_when_its_file_is_written_again_under_another_name() -> None:
    Path("kept").write_text("one")
    os.link("kept", "out")
    output = collect("out", Path("out"))
    Path("kept").write_text("two")
    assert output is not None
    output.file.seek(0)
    assert output.file.read() == b"one"
    output.file.close()


# -- failures ------------------------------------------------------------------------------------------------


def test_a_candidate_that_fails_is_rejected_with_its_last_words() -> None:
    record = judge(command("old.py", FAST, "1"), command("new.py", "raise ValueError('no such shape')"))
    assert record.verdict == "rejected"
    assert record.reasons == [
        "worker-survives: the candidate ended with exit code 1: ValueError: no such shape"
    ]


def test_a_candidate_that_is_killed_is_rejected() -> None:
    record = judge(
        command("old.py", FAST, "1"),
        command("new.py", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"),
    )
    assert record.reasons == ["worker-survives: the candidate failed: killed by SIGSEGV"]


def test_a_candidate_that_hangs_is_rejected_and_its_whole_tree_ended() -> None:
    hang = (
        "import subprocess, sys, time\n"
        "nap = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "child = subprocess.Popen(nap, start_new_session=True)\n"
        "open('pid', 'w').write(str(child.pid))\ntime.sleep(60)\n"
    )
    record = judge(command("old.py", FAST, "1"), command("new.py", hang), timeout=1.0)
    assert record.verdict == "rejected"
    assert "ran past its 1 s" in record.reasons[0]
    assert not alive(int(Path("pid").read_text()))


def test_a_process_left_running_makes_the_two_not_comparable_and_is_ended() -> None:
    daemon = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n"
        "    if os.fork() == 0:\n        open('pid', 'w').write(str(os.getpid()))\n        time.sleep(60)\n"
        "    os._exit(0)\nos.wait()\nprint('done')\n"
    )
    record = judge(command("old.py", "print('done')"), command("new.py", daemon))
    assert record.verdict == "not-comparable"
    assert check(record, "no-leftovers")[0] == "fail"
    assert not alive(int(Path("pid").read_text()))


def test_work_finished_by_a_child_after_the_program_ended_is_timed_too() -> None:
    late = (
        "import os, time, sys\n"
        "if os.fork() == 0:\n    time.sleep(0.3)\n    print('done', flush=True)\n"
        "os._exit(0)\n"
    )
    record = judge(command("old.py", "print('done')"), command("new.py", late), pairs=2)
    assert record.timings["candidate"]["wall"]["p50_us"] > 0.3e6


def test_a_baseline_that_fails_is_an_error_with_a_record() -> None:
    with pytest.raises(TracksideError) as caught:
        judge(command("old.py", "import sys; sys.exit('no data')"), command("new.py", "pass"))
    assert caught.value.kind == "workload"
    assert "the baseline ended with exit code 1: no data" in caught.value.message
    stored = RunStore().load("last")
    assert (stored["status"], stored["certified"], stored["holds"]) == ("failed", False, False)
    assert "no data" in stored["reasons"][0]


def test_a_defect_of_the_judge_leaves_a_record_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("trackside.comparison.commands.compare_outputs", broken)
    with pytest.raises(ZeroDivisionError):
        judge(command("old.py", FAST, "1"), command("new.py", FAST, "1"))
    assert RunStore().load("last")["reasons"] == ["internal: ZeroDivisionError: oh"]


def test_a_seed_on_which_both_fail_is_the_baselines_failure() -> None:
    fails_later = "import os, sys\nif os.path.exists('seen'): sys.exit('empty input')\nprint('x')\n"
    fails = "open('seen', 'w')\nraise ValueError('empty input')\n"
    with pytest.raises(TracksideError, match="the baseline ended with exit code 1: empty input"):
        judge(command("old.py", fails_later), command("new.py", fails))


@pytest.mark.parametrize(
    ("baseline", "candidate", "outputs", "message"),
    [
        ("true {seed}", "true", (), "found {seed} in one command only"),
        ("true", "no-such-program-here", (), "found no program `no-such-program-here` for the candidate"),
        ("true 'x", "true", (), "No closing quotation"),
        ("true", " ", (), "the candidate is empty"),
        ("true", "true", (".",), "found --output ."),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(
    baseline: str, candidate: str, outputs: tuple[str, ...], message: str, home: Path
) -> None:
    with pytest.raises(TracksideError) as caught:
        judge(baseline, candidate, *outputs)
    assert message in caught.value.message
    assert not home.exists()


def test_a_budget_too_small_for_two_quads_names_the_one_needed() -> None:
    with pytest.raises(TracksideError) as caught:
        judge(command("old.py", SLOW, "1"), command("new.py", SLOW, "1"), budget=0.5)
    assert "--budget " in caught.value.remedy


def test_a_script_that_changes_during_the_comparison_makes_it_not_comparable() -> None:
    grows = FAST + "open(__file__, 'a').write('#')\n"
    record = judge(command("old.py", FAST, "1"), command("new.py", grows, "1"), pairs=2)
    assert record.verdict == "not-comparable"
    assert "new.py, named by the candidate, changed" in record.reasons[0]


def test_a_command_is_identified_by_its_program_its_files_and_their_imports() -> None:
    Path("helper.py").write_text("x = 1\n")
    Path("data.csv").write_text("1\n")
    Path("result.npy").write_text("old")
    line = command("main.py", "import helper\n", "--data=data.csv", "result.npy")
    found = identify(line, "baseline", Path.cwd(), ["result.npy"])
    names = {Path(path).name for path in found["files"]}
    assert names == {"main.py", "helper.py", "data.csv", Path(sys.executable).resolve().name}
    Path("helper.py").write_text("x = 2\n")
    assert identify(line, "baseline", Path.cwd(), ["result.npy"])["sha256"] != found["sha256"]


def test_files_within_a_line_for_a_shell_belong_to_the_command(tmp_path: Path) -> None:
    for name in ("old.py", "data.txt", "module.py"):
        (tmp_path / name).write_text("1\n")
    line = "sh -c 'cat data.txt | python old.py --file=data.txt > out.txt; python -m module'"
    found = identify(line, "baseline", tmp_path)
    named = {Path(path).name for path in found["files"]}
    assert {"old.py", "data.txt", "module.py"} <= named
    (tmp_path / "old.py").write_text("2\n")
    assert identify(line, "baseline", tmp_path)["sha256"] != found["sha256"]
    # A line that no shell could read is not looked into, and is no error of ours.
    assert identify("""sh -c 'echo "'""", "baseline", tmp_path)["files"]


# -- interruption --------------------------------------------------------------------------------------------

JUDGE = """
import pathlib, sys
import trackside.store.lock
trackside.store.lock._lock_folder = lambda: pathlib.Path(sys.argv[1])
from trackside.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


def start_judge(tmp_path: Path) -> subprocess.Popen[str]:
    """The real program in the midst of a candidate that never ends."""
    Path("out.txt").write_text("precious")
    slow = (
        "import os, sys, subprocess, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open('pid', 'w').write(str(os.getpid()))\nopen('out.txt', 'w').write('half')\ntime.sleep(60)\n"
    )
    judge = subprocess.Popen(
        [
            *(
                sys.executable,
                "-c",
                JUDGE,
                str(tmp_path / "locks"),
                "compare",
                "--command",
                "--output",
                "out.txt",
            ),
            command("old.py", "open('out.txt', 'w').write('x')"),
            command("new.py", slow),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: Path("pid").exists() and Path("pid").read_text())
    return judge


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_judge_leaves_a_record_no_process_and_the_files_of_before(
    tmp_path: Path, home: Path, number: signal.Signals
) -> None:
    judge = start_judge(tmp_path)
    pid = int(Path("pid").read_text())
    family = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    os.kill(judge.pid, number)
    judge.communicate(timeout=30)
    assert judge.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    wait_for(lambda: list(home.glob("runs/*/record.json")))
    record = RunStore().load("last")
    assert record["status"] == "failed"
    reason = (
        "interrupted before the verdict" if number == signal.SIGINT else "the judge ended before the verdict"
    )
    assert record["reasons"] == [reason]
    assert gone(family)
    assert Path("out.txt").read_text() == "precious"
    assert not list(Path.cwd().glob(".out.txt*"))


# -- the command line ----------------------------------------------------------------------------------------


def test_the_verb_prints_one_json_document_and_returns_the_verdicts_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    baseline, candidate = command("old.py", "print(1.0)"), command("new.py", "print(2.0)")
    assert cli.main(["compare", "--command", baseline, candidate, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "rejected"
    assert document["candidate"]["format"] == "command"
    assert document["options"]["command"] is True


@pytest.mark.parametrize(
    "arguments", [["--command", "--device", "cuda"], ["--command", "--threads", "2"], ["--output", "x"]]
)
def test_options_that_do_not_apply_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", *arguments, "true", "true"]) == 2
    assert "error: found" in capsys.readouterr().err
