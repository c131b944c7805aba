"""`trackside runs`, as the real program, on a store that the test filled."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from trackside.store.runs import RunStore

Trackside = Callable[..., subprocess.CompletedProcess[str]]

RECORD = {
    "schema": "trackside.lap/1",
    "verdict": "faster",
    "certified": False,
    "speedup": {"ratio": 1.8312345, "low": 1.79, "high": 1.87},
    "checks": [{"id": "a"}, {"id": "b"}],
    "note": "[red]not markup[/red]",
    "gap": None,
}


@pytest.fixture
def run_id(home: Path) -> str:
    store = RunStore(home)
    run = store.new_run("lap")
    store.write_record(run, RECORD)
    return run.id


def test_an_empty_store_lists_nothing_and_says_where(trackside: Trackside, home: Path) -> None:
    done = trackside("runs", "list")
    assert (done.returncode, done.stdout) == (0, f"no runs in {home}\n")


def test_the_list_shows_id_verb_and_verdict_and_the_next_command(trackside: Trackside, run_id: str) -> None:
    done = trackside("runs", "list")
    assert (done.returncode, done.stderr) == (0, "")
    _, line, ending = done.stdout.splitlines()
    assert [run_id, "lap"] == line.split()[:2]
    assert "faster, not certified" in line
    assert ending == f"next: trackside runs show {run_id}"


def test_ids_are_whole_and_files_named_on_a_narrow_terminal(trackside: Trackside, home: Path) -> None:
    store = RunStore(home)
    run = store.new_run("compare")
    pair = {
        arm: {"path": f"/some/folder/softmax/{arm}.py", "format": "native"}
        for arm in ("baseline", "candidate")
    }
    store.write_record(
        run, {"schema": "trackside.compare/1", "verdict": "inconclusive", "certified": False, **pair}
    )
    text = trackside("runs", "list", COLUMNS="80").stdout
    assert run.id in text
    told = " ".join(text.split())
    assert "softmax/baseline.py → candidate.py: inconclusive, not certified" in told


def test_the_json_list_is_an_envelope_with_full_counts(trackside: Trackside, home: Path, run_id: str) -> None:
    newest = RunStore(home).new_run("compare")
    document = json.loads(trackside("runs", "list", "--json", "--limit", "1").stdout)
    assert (document["schema"], document["total"], document["shown"]) == ("trackside.runs/1", 2, 1)
    assert [run["id"] for run in document["runs"]] == [newest.id]
    assert document["runs"][0]["state"] == "running"
    only = json.loads(trackside("runs", "list", "--json", "--verb", "lap").stdout)
    assert [run["id"] for run in only["runs"]] == [run_id]


def test_a_cut_list_says_so(trackside: Trackside, home: Path, run_id: str) -> None:
    RunStore(home).new_run("compare")
    assert (
        "1 of 2 runs; `trackside runs list --limit 0` shows all"
        in trackside("runs", "list", "--limit", "1").stdout
    )


def test_an_unreadable_run_is_listed_with_the_reason(trackside: Trackside, home: Path, run_id: str) -> None:
    (home / "runs" / run_id / "record.json").write_text("{")
    done = trackside("runs", "list")
    assert "unreadable" in done.stdout
    assert "cannot read" in done.stdout


def test_show_prints_the_facts_of_a_record_without_a_view_of_its_own(
    trackside: Trackside, run_id: str
) -> None:
    done = trackside("runs", "show", "last")
    assert (done.returncode, done.stderr) == (0, "")
    facts = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert facts["verdict"].strip() == "faster"
    assert facts["speedup"].strip() == "ratio 1.83123, low 1.79, high 1.87"
    assert facts["checks"].strip() == "2 entries (all of them with --json)"
    assert facts["note"].strip() == "[red]not markup[/red]"
    assert facts["gap"].strip() == "-"
    assert facts["run"].startswith(f"{run_id}, record sha256 ")


def test_show_with_json_prints_the_record_itself(trackside: Trackside, run_id: str) -> None:
    done = trackside("runs", "show", run_id[:-2], "--json")
    assert (json.loads(done.stdout), done.stderr) == (RECORD, "")


@pytest.mark.parametrize("record", [{}, {"reasons": 3, "verdict": None, "checks": "no"}])
def test_a_record_that_is_not_whole_is_an_error_that_names_the_way_to_see_it(
    record: dict[str, object], trackside: Trackside, home: Path
) -> None:
    store = RunStore(home)
    run = store.new_run("compare")
    store.write_record(run, {"schema": "trackside.compare/1"} | record)
    done = trackside("runs", "show", "last")
    assert done.returncode == 2
    assert "is not whole" in done.stderr
    assert f"trackside runs show {run.id} --json" in done.stderr
    assert json.loads(trackside("runs", "show", "last", "--json").stdout)["schema"] == "trackside.compare/1"


def test_an_unknown_run_is_not_found(trackside: Trackside, run_id: str) -> None:
    done = trackside("runs", "show", "z-1", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["kind"] == "not-found"


def test_no_color_is_honoured(trackside: Trackside, home: Path, run_id: str) -> None:
    (home / "runs" / run_id / "record.json").write_text("{")
    coloured = trackside("runs", "list", FORCE_COLOR="1", TERM="xterm-256color").stdout
    plain = trackside("runs", "list", FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1").stdout
    assert "\x1b[31munreadable" in coloured
    assert "\x1b[3" not in plain


@pytest.mark.parametrize("arguments", [["runs", "list"], ["runs", "list", "--verb", "compare"]])
def test_a_store_whose_name_is_no_text_is_listed(
    trackside: Trackside, tmp_path: Path, arguments: list[str]
) -> None:
    root = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    shown = f"{tmp_path}/\\udcff"
    done = trackside(*arguments, TRACKSIDE_HOME=root)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"runs in {shown}\n")
    run = RunStore(Path(root)).new_run("compare")
    (run.folder / "record.json").write_text("{")
    done = trackside(*arguments, "--json", TRACKSIDE_HOME=root)
    document = json.loads(done.stdout)
    assert (done.returncode, document["root"]) == (0, shown)
    assert document["runs"][0]["folder"] == f"{shown}/runs/{run.id}"
    assert f"cannot read {shown}" in document["runs"][0]["reason"]
    assert f"cannot read {shown}" in "".join(trackside(*arguments, TRACKSIDE_HOME=root, COLUMNS="500").stdout)


def test_an_error_about_a_store_whose_name_is_no_text_is_a_json_document(
    trackside: Trackside, tmp_path: Path
) -> None:
    root = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    error = json.loads(trackside("runs", "show", "last", "--json", TRACKSIDE_HOME=root).stdout)["error"]
    assert error["message"] == f"there are no runs in {tmp_path}/\\udcff"


def test_json_is_utf_8_whatever_the_terminal_speaks(trackside: Trackside, home: Path) -> None:
    store = RunStore(home)
    store.write_record(store.new_run("lap"), {"schema": "trackside.lap/1", "time": "5 µs"})
    done = trackside("runs", "show", "last", "--json", PYTHONIOENCODING="ascii")
    assert (done.returncode, json.loads(done.stdout)["time"]) == (0, "5 µs")
