"""What docs/suite.md shows: the suite file loads, and the workflow is one."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.suite.projects import BASELINE, RIGHT

from trackside.records.errors import TracksideError
from trackside.suite.suite_file import load_suite

PAGE = Path(__file__).resolve().parents[2] / "docs" / "suite.md"


def block(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def shown_suite(folder: Path) -> Path:
    text = block("toml")
    for name in re.findall(r'"(kernels/\w+\.py)"', text):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(RIGHT if "fused" in name else BASELINE)
    (folder / "trackside.toml").write_text(text)
    return folder / "trackside.toml"


def test_the_suite_that_is_shown_loads_with_the_names_that_are_said(tmp_path: Path) -> None:
    names = [entry.name for entry in load_suite(shown_suite(tmp_path)).entries]
    assert names == ["softmax", "chain.left", "chain.right", "attention"]


def test_the_error_that_is_shown_is_what_is_said(tmp_path: Path) -> None:
    path = shown_suite(tmp_path)
    path.write_text(path.read_text().replace('candidate = "kernels/softmax', 'candidte = "kernels/softmax'))
    with pytest.raises(TracksideError) as caught:
        load_suite(path)
    assert f"error: {caught.value.message}\nremedy: {caught.value.remedy}" in PAGE.read_text()


def test_the_workflow_uploads_what_lies_in_a_hidden_folder() -> None:
    workflow: dict[Any, Any] = yaml.safe_load(block("yaml"))
    (upload,) = [
        step["with"]
        for step in workflow["jobs"]["check"]["steps"]
        if str(step.get("uses")).startswith("actions/upload-artifact@")
    ]
    hidden = any(part.startswith(".") for path in upload["path"].split() for part in Path(path).parts)
    # From 4.4 on, that action leaves them out unless it is told otherwise.
    assert upload["include-hidden-files"] is hidden is True


@pytest.mark.parametrize(("ended", "wanted"), [(0, 0), (1, 1), (2, 2), (3, 0), (4, 0)])
def test_the_workflow_passes_on_what_is_a_failure(tmp_path: Path, ended: int, wanted: int) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(block("yaml"))
    steps = workflow["jobs"]["check"]["steps"]
    (script,) = [step["run"] for step in steps if step.get("name") == "trackside check"]
    (tmp_path / "trackside").write_text(f"#!/bin/sh\nexit {ended}\n")
    (tmp_path / "trackside").chmod(0o755)
    # As GitHub runs it.
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == wanted
