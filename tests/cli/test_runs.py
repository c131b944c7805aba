"""`trackside runs`, as the real program, on a store that the test filled."""

import json
import os
import shlex
import subprocess
import sys
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


def test_the_command_that_shows_all_has_the_filters_of_the_one_that_did_not(
    trackside: Trackside, home: Path
) -> None:
    store = RunStore(home)
    for _ in range(2):
        pair = {arm: {"path": f"/x/my ops/{arm}.py"} for arm in ("baseline", "candidate")}
        store.write_record(store.new_run("lap"), RECORD | pair)
    words = ["--verb", "lap", "--verdict", "faster", "--state", "done", "--since", "2d", "--about", "my ops"]
    done = trackside("runs", "list", *words, "--limit", "1")
    told = next(line for line in done.stdout.splitlines() if "shows all" in line)
    assert shlex.split(told.split("`")[1]) == ["trackside", "runs", "list", *words, "--limit", "0"]


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


def fill(home: Path) -> list[str]:
    """Three comparisons and a profile, oldest first."""
    store, made = RunStore(home), []
    for number, verdict in enumerate(("faster", "slower", "faster")):
        run = store.new_run("compare")
        names = {"baseline": f"/code/softmax/base{number}.py", "candidate": "/code/softmax/new.py"}
        pair = {arm: {"path": path, "format": "native"} for arm, path in names.items()}
        store.write_record(run, {"schema": "trackside.compare/1", "verdict": verdict, **pair})
        made.append(run.id)
    run = store.new_run("profile")
    record = {"schema": "trackside.profile/1", "command": ["python", "train.py"], "verdict": "copies"}
    store.write_record(run, record)
    return [*made, run.id]


def listed(trackside: Trackside, *arguments: str) -> list[str]:
    document = json.loads(trackside("runs", "list", "--json", *arguments).stdout)
    assert document["total"] == document["shown"] == len(document["runs"])
    return [run["id"] for run in document["runs"]]


def test_a_list_is_narrowed_by_what_came_out_when_and_about_what(trackside: Trackside, home: Path) -> None:
    first, second, third, profile = fill(home)
    assert listed(trackside, "--verdict", "faster") == [third, first]
    assert listed(trackside, "--verdict", "faster", "--about", "BASE0") == [first]
    assert listed(trackside, "--about", "train.py", "--state", "done") == [profile]
    assert listed(trackside, "--since", "1h", "--until", "2999-01-01") == [profile, third, second, first]
    assert listed(trackside, "--until", "2020-01-01") == []
    assert trackside("runs", "list", "--verdict", "great").stdout == f"no such runs in {home}\n"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["list", "--since", "yesterday"], "an age such as `7d`"),
        (["list", "--state", "asleep"], "one of done, failed, running, died, unreadable, newer"),
        (["rm"], "neither ids nor a rule"),
        (["rm", "last", "--keep-last", "3"], "both ids and rules"),
        (["rm", "--older-than", "2026-11-01"], "an age"),
        (["rm", "--larger-than", "much"], "a size"),
        (["rm", "--keep-last", "-1"], "keep-last"),
        (["export", "last"], "--out"),
        (["import"], "FILE"),
    ],
)
def test_wrong_use_says_what_was_needed(
    trackside: Trackside, home: Path, arguments: list[str], wanted: str
) -> None:
    fill(home)
    done = trackside("runs", *arguments, "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["kind"]) == (2, "usage")
    assert wanted in error["message"]
    assert len(RunStore(home).list()) == 4


def test_a_dry_run_says_what_would_go_and_removes_nothing(trackside: Trackside, home: Path) -> None:
    first, second, *_ = fill(home)
    done = trackside("runs", "rm", "--keep-last", "2", "--dry-run")
    lines = done.stdout.splitlines()
    assert [line.split()[:3] for line in lines[:2]] == [
        ["would", "remove", first],
        ["would", "remove", second],
    ]
    assert lines[2].startswith("would remove 2 runs, ")
    assert lines[2].endswith("; 2 would be left")
    assert len(RunStore(home).list()) == 4


def test_rm_says_what_it_freed(trackside: Trackside, home: Path) -> None:
    first, second, third, profile = fill(home)
    size = sum(path.stat().st_size for path in (home / "runs" / first).iterdir())
    document = json.loads(trackside("runs", "rm", first, "--json").stdout)
    assert document["removed"] == [{"id": first, "bytes": size}]
    assert (document["schema"], document["freed_bytes"], document["left"]) == ("trackside.runs-rm/1", size, 3)
    assert trackside("runs", "rm", "--older-than", "1d").stdout == "removed 0 runs, 0 B; 3 left\n"
    assert trackside("runs", "rm", second, profile).stdout.splitlines()[-1].startswith("removed 2 runs, ")
    assert [run.id for run in RunStore(home).list()] == [third]


def test_rm_refuses_a_run_that_is_under_way_and_removes_none_of_the_others(
    trackside: Trackside, home: Path
) -> None:
    made = fill(home)
    running = RunStore(home).new_run("compare").id
    done = trackside("runs", "rm", made[0], running)
    assert done.returncode == 2
    assert f"will not remove run {running}: process {os.getpid()} is at work" in done.stderr
    assert len(RunStore(home).list()) == 5


def test_runs_go_to_another_store_in_one_file(trackside: Trackside, home: Path, tmp_path: Path) -> None:
    made = fill(home)
    out, elsewhere = tmp_path / "runs.tar.gz", str(tmp_path / "elsewhere")
    done = trackside("runs", "export", made[0], "last", "--out", str(out))
    assert done.stdout.splitlines()[-1] == "next, elsewhere: trackside runs import runs.tar.gz"
    assert trackside("runs", "export", "last", "--out", str(out)).returncode == 2
    document = json.loads(trackside("runs", "import", str(out), "--json", TRACKSIDE_HOME=elsewhere).stdout)
    assert (document["imported"], document["present"]) == ([made[0], made[3]], [])
    again = trackside("runs", "import", str(out), TRACKSIDE_HOME=elsewhere)
    assert again.stdout.splitlines()[:2] == [f"already here {made[0]}", f"already here {made[3]}"]
    show = trackside("runs", "show", made[0], "--json", TRACKSIDE_HOME=elsewhere)
    assert json.loads(show.stdout) == RunStore(home).load(made[0])


def test_an_export_with_json_says_what_is_in_it(trackside: Trackside, home: Path, tmp_path: Path) -> None:
    made = fill(home)
    (home / "runs" / made[3] / "link").symlink_to("/etc/passwd")
    out = tmp_path / "runs.tar.gz"
    document = json.loads(trackside("runs", "export", "last", "--out", str(out), "--json").stdout)
    assert (document["runs"], document["left_out"]) == ([made[3]], [f"{made[3]}/link"])
    assert (document["path"], document["bytes"]) == (str(out), out.stat().st_size)


def test_a_file_that_is_no_export_is_an_error_with_its_remedy(trackside: Trackside, tmp_path: Path) -> None:
    (tmp_path / "photo.tar.gz").write_bytes(b"\x1f\x8b nothing")
    done = trackside("runs", "import", str(tmp_path / "photo.tar.gz"))
    assert done.returncode == 2
    assert "is no whole archive of runs" in done.stderr
    assert "trackside runs export" in done.stderr


def test_an_unknown_run_is_told_with_its_nearest(trackside: Trackside, run_id: str) -> None:
    done = trackside("runs", "show", run_id[:-1] + "z")
    assert done.returncode == 2
    assert f"nearest: {run_id}" in done.stderr


@pytest.mark.parametrize("as_json", [True, False])
def test_a_damaged_index_is_told_on_stderr_once_and_the_list_is_whole(
    trackside: Trackside, home: Path, as_json: bool
) -> None:
    made = fill(home)
    trackside("runs", "list")
    (home / "index.sqlite3").write_bytes(b"broken" * 1000)
    done = trackside("runs", "list", *(["--json"] if as_json else []))
    assert done.returncode == 0
    assert done.stderr.startswith("remark: the index was damaged (")
    assert "index.sqlite3.corrupt-" in done.stderr
    assert all(run_id in done.stdout for run_id in made)
    assert trackside("runs", "list").stderr == ""


def test_a_record_of_a_newer_release_is_named_as_such(trackside: Trackside, home: Path) -> None:
    store = RunStore(home)
    run = store.new_run("compare")
    store.write_record(run, {"schema": "trackside.compare/2", "verdict": 7})
    assert "newer (a newer Trackside wrote it, as trackside.compare/2" in trackside("runs", "list").stdout
    for arguments in (["show", "last"], ["show", "last", "--json"]):
        done = trackside("runs", *arguments)
        assert done.returncode == 2
        assert "pip install --upgrade trackside" in done.stdout + done.stderr


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_list_with_no_option_of_a_value_imports_no_pydantic(
    home: Path, run_id: str, more: list[str]
) -> None:
    program = (
        "import sys; from trackside.cli.main import main; code = main(sys.argv[1:])\n"
        "print('heavy:', code, [name for name in ('torch', 'pydantic', 'numpy') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "runs", "list", *more],
        env=os.environ | {"TRACKSIDE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run_id in done.stdout
    assert done.stdout.endswith("heavy: 0 []\n")


def test_a_list_without_a_limit_shows_the_newest_twenty(trackside: Trackside, home: Path) -> None:
    store = RunStore(home)
    for _ in range(21):
        store.write_record(store.new_run("lap"), RECORD)
    document = json.loads(trackside("runs", "list", "--json").stdout)
    assert (document["total"], document["shown"]) == (21, 20)
    assert json.loads(trackside("runs", "list", "--json", "--limit", "0").stdout)["shown"] == 21
