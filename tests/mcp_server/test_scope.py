"""Files outside of the roots stay outside, by whatever path they are named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest
from tests.mcp_server.stores import filled, keep
from tests.report.profile_records import cpu_program

from trackside.mcp_server.run_tools import RunTools
from trackside.mcp_server.scope import Scope, open_scope
from trackside.mcp_server.server import build_server
from trackside.mcp_server.source_tools import SourceTools
from trackside.records.errors import TracksideError
from trackside.records.profile import ProfileRecord


@pytest.fixture
def scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scope:
    """A project with a file, beside a folder that is none of its business."""
    monkeypatch.delenv("TRACKSIDE_HOME", raising=False)
    for folder in ("project/sub", "project-two", "outside"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("project/train.py", "project/sub/model.py", "project-two/near.py", "outside/secret.py"):
        (tmp_path / file).write_text("pass\n")
    return open_scope([tmp_path / "project"])


def test_files_below_a_root_are_found_by_any_honest_name(scope: Scope) -> None:
    for name in ("train.py", "./sub/../train.py", str(scope.folder / "train.py"), "sub/model.py"):
        assert scope.file(name).is_relative_to(scope.folder)


@pytest.mark.parametrize(
    "name",
    [
        "../outside/secret.py",
        "sub/../../outside/secret.py",
        "/etc/passwd",
        "../project-two/near.py",
        "link.py",
        "linked/secret.py",
        "chain.py",
        "sub/up/outside/secret.py",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "~/.ssh/id_rsa",
        "train.py\0",
        "",
        "x" * 5000,
    ],
)
def test_what_lies_outside_is_refused(scope: Scope, name: str) -> None:
    outside = scope.folder.parent / "outside"
    (scope.folder / "link.py").symlink_to(outside / "secret.py")
    (scope.folder / "linked").symlink_to(outside)
    (scope.folder / "chain.py").symlink_to("link.py")
    (scope.folder / "sub" / "up").symlink_to("../..")
    with pytest.raises(TracksideError):
        scope.file(name)
    with pytest.raises(TracksideError):
        scope.workload(name)


def test_a_link_inside_the_root_is_followed(scope: Scope) -> None:
    (scope.folder / "link.py").symlink_to("train.py")
    assert scope.file("link.py") == scope.folder / "train.py"


def test_a_second_root_allows_its_files(scope: Scope) -> None:
    both = open_scope([scope.folder, scope.folder.parent / "outside"])
    assert both.file("../outside/secret.py").name == "secret.py"


def test_a_pipe_or_a_folder_is_no_file(scope: Scope) -> None:
    os.mkfifo(scope.folder / "pipe.py")
    for name in ("pipe.py", "sub", "."):
        with pytest.raises(TracksideError, match="found no file"):
            scope.file(name)


@pytest.mark.parametrize(
    "word", ["/etc/passwd", "--data=/etc/passwd", "../outside", "--out=../outside/secret.py"]
)
def test_arguments_that_name_things_outside_are_refused(scope: Scope, word: str) -> None:
    with pytest.raises(TracksideError, match="outside of the roots"):
        scope.check_arguments(["--steps", "3", word])


def test_other_arguments_are_the_programs_own(scope: Scope) -> None:
    scope.check_arguments(["--steps=3", "sub", "--file=train.py", "; rm -rf /", "$(id)", "a=b=c", "-", "--"])


def test_a_record_that_links_out_of_the_store_is_not_read(scope: Scope) -> None:
    runs = filled(scope.folder)
    private = scope.folder.parent / "outside" / "credentials.json"
    private.write_text(json.dumps({"schema": "trackside.profile/1", "private_key": "x"}))
    record = scope.folder / ".trackside" / "runs" / runs["cpu"] / "record.json"
    record.unlink()
    record.symlink_to(private)
    with pytest.raises(TracksideError, match="a link out of the store"):
        scope.record(runs["cpu"])


@pytest.mark.parametrize("kind", ["pipe", "giant"])
def test_a_record_that_is_a_pipe_or_a_giant_holds_nobody_up(scope: Scope, kind: str) -> None:
    folder = scope.store.root / "runs" / "p-20261118-000000-abcd"
    folder.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(folder / "record.json")
    else:
        with (folder / "record.json").open("wb") as file:
            file.truncate(4 << 30)
    with pytest.raises(TracksideError, match="no file of a record's size"):
        scope.record(folder.name)


def test_json_that_is_no_record_is_not_told(scope: Scope) -> None:
    runs = filled(scope.folder)
    record = scope.folder / ".trackside" / "runs" / runs["cpu"] / "record.json"
    record.write_text(json.dumps({"type": "service_account", "private_key": "x"}))
    with pytest.raises(TracksideError, match="no record of Trackside"):
        scope.record(runs["cpu"])


def test_a_root_that_is_no_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(TracksideError, match="found no folder"):
        open_scope([tmp_path / "absent"])


@pytest.mark.parametrize("linked", ["reference.py", "task.yml", "task.py"])
def test_a_task_folder_with_a_link_out_of_the_roots_is_refused(scope: Scope, linked: str) -> None:
    task = scope.folder / "task"
    task.mkdir()
    for name in ("reference.py", "task.yml", "task.py"):
        (task / name).write_text("lang: py\n")
    assert scope.workload("task") == task
    (task / linked).unlink()
    (task / linked).symlink_to(scope.folder.parent / "outside" / "secret.py")
    for name in ("task", "task/reference.py", "task/submission.py"):
        (task / "submission.py").write_text("pass\n")
        with pytest.raises(TracksideError, match="outside of the allowed roots"):
            scope.workload(name)


def test_a_task_whose_description_names_a_source_outside_is_refused(scope: Scope) -> None:
    (scope.folder / "reference.py").write_text("pass\n")
    (scope.folder / "task.yml").write_text(
        'files:\n  - {name: "reference.py", source: "../outside/secret.py"}\n'
    )
    with pytest.raises(TracksideError, match="outside of the allowed roots"):
        scope.workload(".")


def test_source_is_read_from_the_file_that_was_checked(scope: Scope) -> None:
    """Whatever takes its place after the check: a link out, or a pipe that nobody writes to."""
    tools = SourceTools(scope)
    train = scope.folder / "train.py"
    assert tools.source_read("train.py").source.endswith("pass")
    checked = scope.file("train.py")
    train.unlink()
    train.symlink_to(scope.folder.parent / "outside" / "secret.py")
    with pytest.raises(TracksideError):
        scope.read(checked, 100)
    train.unlink()
    os.mkfifo(train)
    with pytest.raises(TracksideError):
        scope.read(checked, 100)


def test_a_folder_that_became_a_link_out_is_not_read_through(scope: Scope) -> None:
    checked = scope.file("sub/model.py")
    (scope.folder / "sub").rename(scope.folder / "kept")
    (scope.folder.parent / "outside" / "model.py").write_text("private\n")
    (scope.folder / "sub").symlink_to(scope.folder.parent / "outside")
    with pytest.raises(TracksideError, match="outside of the allowed roots"):
        scope.read(checked, 100)


def test_no_source_of_a_file_outside_is_shown_by_any_view_of_a_run(scope: Scope) -> None:
    """Lines, their memory, and the changes that findings propose quote the file."""
    record = cpu_program().to_dict()
    outside = str(scope.folder.parent / "outside" / "secret.py")
    memory = record["memory"][0]
    for row in (*record["lines"], *record["findings"], *memory["lines"], *memory["growth_lines"]):
        row["file"] = outside
        row |= {name: "canary" for name in ("text", "diff") if name in row}
    run = keep(scope.store.root, "profile", ProfileRecord.from_dict(record))
    server = build_server(scope).server

    async def shown() -> list[str]:
        uris = [f"runs://{run}{part}" for part in ("", "/lines", "/findings", "/memory")]
        return [str(next(iter(await server.read_resource(uri))).content) for uri in uris]

    texts = anyio.run(shown)
    texts.append(RunTools(scope).findings_list(run, "full").model_dump_json())
    texts.append(RunTools(scope).hotspots_list(run, detail="full").model_dump_json())
    assert [text.count("canary") for text in texts] == [0] * 6


def test_the_source_of_files_inside_is_shown(scope: Scope) -> None:
    record = cpu_program().to_dict()
    for row in record["findings"]:
        row["diff"] = "-old\n+new"
    run = keep(scope.store.root, "profile", ProfileRecord.from_dict(record))
    assert RunTools(scope).findings_list(run, "full").rows[0].diff == "-old\n+new"


def test_a_secret_at_the_cut_of_a_line_or_a_verdict_is_not_left_in_part(
    scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "canary-0123456789-0123456789")
    (scope.folder / "train.py").write_text("#" * 390 + "canary-0123456789-0123456789\n")
    assert "canary" not in SourceTools(scope).source_read("train.py").source
    record = cpu_program().to_dict() | {"verdict": "v" * 75 + "canary-0123456789-0123456789"}
    keep(scope.store.root, "profile", ProfileRecord.from_dict(record))
    assert "canary" not in str(RunTools(scope).runs_list().rows[0].verdict)
