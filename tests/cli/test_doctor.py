"""`trackside doctor`, as the real program, on this machine."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from trackside.store.runs import RunStore

Trackside = Callable[..., subprocess.CompletedProcess[str]]

SCRIPT = """
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 8).cuda()
loader = DataLoader(range(64), batch_size=8)
optimizer = torch.optim.AdamW(model.parameters())
total = 0.0
for batch in loader:
    loss = model(batch.cuda()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total += loss.item()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def document_of(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode in (0, 1), done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_the_exit_code_is_one_exactly_where_something_fails_and_worst_comes_first(
    trackside: Trackside,
) -> None:
    done = trackside("doctor", "--json")
    document = json.loads(done.stdout)
    assert document["schema"] == "trackside.doctor/1"
    assert done.returncode == (1 if document["counts"]["fail"] else 0)
    order = ["fail", "warn", "unknown", "pass", "not_applicable"]
    places = [order.index(finding["status"]) for finding in document["checks"]]
    assert places == sorted(places)
    assert sum(document["counts"].values()) == len(document["checks"])


def test_every_finding_says_what_there_is_and_every_trouble_how_to_mend_it(trackside: Trackside) -> None:
    for finding in json.loads(trackside("doctor", "--json").stdout)["checks"]:
        assert finding["found"]
        if finding["status"] in ("fail", "warn"):
            assert finding["wanted"]
            assert finding["fix"]


def test_a_visit_is_kept_and_shown_again(trackside: Trackside, home: Path) -> None:
    trackside("doctor", "--family", "os")
    (run,) = RunStore(home).list()
    assert run.verb == "doctor"
    shown = trackside("runs", "show", "last")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "probes" in shown.stdout


def test_a_script_is_read_with_its_lines_and_not_run(trackside: Trackside, script: Path) -> None:
    script.write_text(SCRIPT + "\nopen('ran', 'w')\n")
    document = json.loads(trackside("doctor", str(script), "--json").stdout)
    assert document["script"] == str(script)
    found = {f["id"]: f for f in document["checks"] if f["about"] == "script" and f["places"]}
    assert f"{script}:6" in found["storage.num-workers"]["places"]
    assert not (script.parent / "ran").exists()
    assert len(document["relevant"]) == 10


def test_the_items_that_matter_most_begin_with_what_was_found(trackside: Trackside, script: Path) -> None:
    document = json.loads(trackside("doctor", str(script), "--json").stdout)
    troubles = {f["id"] for f in document["checks"] if f["status"] in ("fail", "warn")}
    chosen = [one["item"] for one in document["relevant"]]
    assert len(set(chosen)) == 10
    assert chosen[0] in troubles
    assert all(one["because"] for one in document["relevant"])


def test_an_item_is_explained_with_what_was_found_here(trackside: Trackside) -> None:
    done = trackside("doctor", "--explain", "os.nofile")
    assert done.returncode == 0
    for word in ("found", "why", "when", "check", "effect", "source"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--family", "storge"], "nearest: storage"),
        (["--explain", "os.nofiles"], "nearest: os.nofile"),
        (["nowhere.py"], "cannot read nowhere.py"),
    ],
)
def test_wrong_use_names_what_is_near(arguments: list[str], words: str, trackside: Trackside) -> None:
    done = trackside("doctor", *arguments)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_file_that_is_no_python_is_refused_with_its_line(trackside: Trackside, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    done = trackside("doctor", "broken.py")
    assert done.returncode == 2
    assert "line 2" in done.stderr


def test_fixes_are_written_as_a_script_that_only_prints(trackside: Trackside, tmp_path: Path) -> None:
    trackside("doctor", "--fix-script", "fix.sh")
    text = (tmp_path / "fix.sh").read_text()
    done = subprocess.run(["sh", "fix.sh"], cwd=tmp_path, capture_output=True, text=True, check=True)
    steps = [line for line in text.splitlines() if line.startswith("step ")]
    assert len(done.stdout.splitlines()) == len(steps)
    assert all(line.startswith("+ ") for line in done.stdout.splitlines())


def test_fixes_are_not_written_over_anything_but_earlier_ones(trackside: Trackside, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    done = trackside("doctor", "train.py", "--fix-script", "train.py")
    assert (done.returncode, script.read_text()) == (2, "import torch\n")
    assert "is there already" in done.stderr
    os.mkfifo(tmp_path / "pipe")
    assert trackside("doctor", "--family", "os", "--fix-script", "pipe").returncode == 2
    for _ in range(2):
        trackside("doctor", "--family", "os", "--fix-script", "fix.sh")
    assert (tmp_path / "fix.sh").read_text().startswith("#!/bin/sh")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("notes.ipynb", '{"cells": []}', "jupyter nbconvert"),
        ("deep.py", "x = " + "-" * 100_000 + "1\n", "is no Python that can be parsed"),
    ],
)
def test_what_is_no_plain_python_file_is_refused_with_a_remedy(
    name: str, content: str, words: str, trackside: Trackside, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    done = trackside("doctor", name)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("path", ["/dev/zero", "pipe"])
def test_a_device_or_a_pipe_is_no_script(path: str, trackside: Trackside, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = trackside("doctor", path)
    assert (done.returncode, "name a Python file" in done.stderr) == (2, True)


def test_where_nothing_can_be_stored_the_doctor_still_answers(trackside: Trackside, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = trackside("doctor", "--family", "os", "--json", TRACKSIDE_HOME=str(blocked))
    assert document_of(done)["run_id"] is None
    assert "remark: what doctor found is not kept as a run: cannot create" in done.stderr
