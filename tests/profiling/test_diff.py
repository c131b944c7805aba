"""Two profiles side by side."""

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.report.profile_records import HOSTILE, cpu_program, gpu_training, hostile, nothing

from trackside.profiling.diff import diff_profiles
from trackside.records.profile import ProfileRecord
from trackside.report.profile_diff_text import render
from trackside.store.runs import RunStore

Keep = Callable[[ProfileRecord], str]
Trackside = Callable[..., subprocess.CompletedProcess[str]]


def changed(record: ProfileRecord, **fields: Any) -> ProfileRecord:
    return ProfileRecord.model_validate(record.model_dump(by_alias=True) | fields)


def test_a_profile_and_itself_differ_in_nothing() -> None:
    found = diff_profiles(gpu_training(), gpu_training())
    assert found.verdict.startswith("No difference beyond what steps vary by: 212 ms → 212 ms")
    assert (found.lines, found.kernels, found.modules, found.buckets) == ([], [], [], [])
    assert (found.fixed, found.new, found.doubts) == ([], [], [])
    assert found.beyond_spread is False


def test_runs_of_different_commands_are_said_to_be_that() -> None:
    before = cpu_program()
    found = diff_profiles(before, changed(before, command=["python", "other.py", "--lr", "0.1"]))
    (doubt,) = found.doubts
    assert doubt.endswith("then python other.py --lr 0.1")


def test_the_change_of_peak_memory_is_told_by_device() -> None:
    before = cpu_program()
    tensors = before.memory[0]
    less = tensors.model_copy(update={"peak_bytes": 5_200_000})
    found = diff_profiles(before, changed(before, memory=[less.model_dump()]))
    assert [(one.device, one.after_bytes, one.delta_bytes) for one in found.memory] == [
        ("cpu", 5_200_000, -4_000_000),
        ("process", None, None),
    ]
    out = io.StringIO()
    render(found.to_dict(), Console(file=out, width=100, highlight=False))
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert ["cpu", "9.2", "MB", "5.2", "MB", "-4", "MB"] in rows
    assert ["process", "571", "MB", "–"] in rows


def test_a_line_that_moved_is_the_same_line_and_what_replaced_it_is_named() -> None:
    before = cpu_program()
    (file,) = before.sources
    source = before.sources[file]
    text = "    y = torch.tanh(x @ weights)"
    # Two lines more above, and the loop over rows is gone.
    after = changed(
        before,
        sources={file: ["# one", "# two", *source[:6], text]},
        step_ms=4.0,
        lines=[
            line.model_dump() | {"line": line.line + 2, "cpu_ms": line.cpu_ms}
            for line in before.lines
            if line.line <= 6
        ]
        + [before.lines[0].model_dump() | {"line": 9, "text": text, "cpu_ms": 0.5, "backward_ms": 0.0}],
        findings=[],
    )
    found = diff_profiles(before, after)
    moved = {(one.before_line, one.after_line) for one in found.lines}
    assert all(first is None or second is None for first, second in moved), "unchanged lines cost the same"
    gone = {one.before_line: one for one in found.lines if one.after_line is None}
    assert set(gone) == {line.line for line in before.lines if line.line > 6}
    (new,) = [one for one in found.lines if one.before_line is None]
    assert (new.name, new.text, new.after_ms) == (f"{file}:9", text, 0.5)
    assert found.lines[0].delta_ms == max((one.delta_ms for one in found.lines), key=abs)
    assert "57.4% faster, most of it at" in found.verdict
    assert [one.id for one in found.fixed] == [one.id for one in before.findings]


def test_a_line_rewritten_in_place_keeps_its_place() -> None:
    before = cpu_program()
    (file,) = before.sources
    source = list(before.sources[file])
    number = max(before.lines, key=lambda line: line.cpu_ms).line
    source[number - 1] += "  # rewritten"
    after = changed(
        before,
        sources={file: source},
        lines=[
            line.model_dump() | ({"cpu_ms": 0.25, "text": source[number - 1]} if line.line == number else {})
            for line in before.lines
        ],
    )
    (only,) = diff_profiles(before, after).lines
    assert (only.before_line, only.after_line, only.after_ms) == (number, number, 0.25)


def test_a_copy_under_another_name_is_the_same_file() -> None:
    before = cpu_program()
    (file,) = before.sources
    copy = "elsewhere/copy.py"
    after = changed(
        before,
        sources={copy: [*before.sources[file], "# another line"]},
        step_ms=4.0,
        lines=[one.model_dump() | {"file": copy, "cpu_ms": one.cpu_ms / 2} for one in before.lines],
        findings=[one.model_dump() | {"file": copy} for one in before.findings],
    )
    found = diff_profiles(before, after)
    assert before.findings
    assert (found.fixed, found.new) == ([], [])
    assert {one.name.rpartition(":")[0] for one in found.lines} == {copy}
    assert all(one.before_ms is not None and one.after_ms is not None for one in found.lines)
    # What says something else is another file.
    other = diff_profiles(before, changed(after, sources={copy: ["print(1)"]}))
    assert len(other.fixed) == len(before.findings) == len(other.new)


def test_a_difference_within_the_spread_is_none() -> None:
    before = changed(cpu_program(), step_ms=10.0, step_spread=0.05)
    assert diff_profiles(before, changed(before, step_ms=10.4)).beyond_spread is False
    assert diff_profiles(before, changed(before, step_ms=10.6)).beyond_spread is True
    assert "6.0% slower" in diff_profiles(before, changed(before, step_ms=10.6)).verdict


def test_profiles_that_are_hard_to_compare_say_why() -> None:
    before, after = cpu_program(), gpu_training()
    doubts = " ".join(diff_profiles(before, after).doubts)
    assert "different devices: cpu and NVIDIA H200" in doubts
    assert "a step may not be the same thing" in doubts
    none = diff_profiles(before, nothing())
    assert none.step is None
    assert none.verdict.startswith("Steps cannot be compared")
    assert any("no step times" in one for one in none.doubts)
    other = changed(before, environment={"fingerprint": "b"})
    found = diff_profiles(changed(before, environment={"fingerprint": "a"}), other)
    assert found.doubts == ["they ran on different machines, or on one that has changed since"]


# -- the verb ----------------------------------------------------------------------------------------


@pytest.fixture
def keep(home: Path) -> Keep:
    def keep(record: ProfileRecord) -> str:
        store = RunStore(home)
        run = store.new_run("profile")
        store.write_record(run, record.model_copy(update={"run_id": run.id}).to_dict())
        return run.id

    return keep


def test_runs_diff_shows_both_times_the_change_and_how_to_prove_it(trackside: Trackside, keep: Keep) -> None:
    first = keep(cpu_program())
    second = keep(changed(cpu_program(), step_ms=4.0, findings=[]))
    shown = trackside("runs", "diff", first, second)
    assert shown.returncode == 0
    assert "9.4 ms → 4 ms a step: 57.4% faster" in shown.stdout
    assert "no longer found" in shown.stdout
    assert "trackside compare" in shown.stdout
    told = json.loads(trackside("runs", "diff", first, second, "--json").stdout)
    assert (told["schema"], told["before"], told["after"]) == ("trackside.profile-diff/1", first, second)


def test_hostile_names_do_not_steer_the_terminal(trackside: Trackside, keep: Keep) -> None:
    record = hostile()
    first = keep(record)
    second = keep(changed(record, lines=[], kernels=[], modules=[], buckets=[], findings=[]))
    shown = trackside("runs", "diff", first, second)
    assert shown.returncode == 0, shown.stderr
    assert any(name[:20] in shown.stdout for name in HOSTILE)
    assert not set("\x00\x07\x1b\u202e") & set(shown.stdout)


def test_a_run_that_is_no_profile_is_refused(trackside: Trackside, keep: Keep, home: Path) -> None:
    first = keep(cpu_program())
    store = RunStore(home)
    other = store.new_run("doctor")
    store.write_record(other, {"schema": "trackside.doctor/1", "run_id": other.id, "status": "done"})
    refused = trackside("runs", "diff", first, other.id)
    assert refused.returncode == 2
    assert "needed: a profile" in refused.stderr
