"""The script of fixes: it only prints until it is told to apply, and leaves to people what is no command."""

import os
import subprocess
from pathlib import Path

import pytest

from trackside.handbook.items import items
from trackside.machine.doctor.fix_script import fix_script
from trackside.machine.doctor.probe import Finding, fails, passes, warns

ITEM = items()["os.nofile"]


def run(text: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "fix.sh").write_text(text)
    return subprocess.run(
        ["sh", "fix.sh"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("apply", [False, True])
def test_commands_run_only_when_told_to(apply: bool, tmp_path: Path) -> None:
    text = fix_script([Finding(ITEM, "machine", warns("few", "many", ["echo ran > 'a marker'"]))])
    done = run(text, tmp_path, **({"APPLY": "1"} if apply else {}))
    assert "+ echo ran > 'a marker'" in done.stdout
    assert (tmp_path / "a marker").exists() is apply


@pytest.mark.parametrize(
    "change",
    [
        "DataLoader(dataset, num_workers=8)",
        "kill <pid>",
        "sudo fstrim DATADIR",
        # The script's own shell, which ends, cannot do these for anybody.
        "export THP_MEM_ALLOC_ENABLE=1",
        "ulimit -n 131072",
    ],
)
def test_what_is_no_command_or_not_filled_in_is_left_to_people(change: str, tmp_path: Path) -> None:
    text = fix_script([Finding(ITEM, "machine", fails("few", "many", [change]))])
    assert f"#   by hand: {change}" in text
    assert run(text, tmp_path, APPLY="1").stdout == ""


def test_a_failing_step_does_not_end_the_others(tmp_path: Path) -> None:
    changes = ["echo a > missing/folder", "echo b > there"]
    run(fix_script([Finding(ITEM, "machine", warns("few", "many", changes))]), tmp_path, APPLY="1")
    assert (tmp_path / "there").read_text() == "b\n"


def test_what_is_as_it_should_be_is_not_changed() -> None:
    assert "Nothing is to be changed." in fix_script([Finding(ITEM, "machine", passes("many"))])
