"""Every probe on a recorded machine that is good, on one that differs in one file, and on this machine."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from trackside.handbook.items import items
from trackside.machine.doctor.probe import STATUSES, examine, probes
from trackside.machine.doctor.script import read_script
from trackside.machine.doctor.system import System

HERE = Path(__file__).parent
CASES = [
    case
    for path in sorted((HERE / "cases").glob("*.toml"))
    for case in tomllib.loads(path.read_text())["case"]
]


def system_of(tree: str, files: dict[str, str], folder: Path) -> System:
    """A recorded machine with some files otherwise; one that is "-" is not there."""
    recorded = HERE / "trees" / tree
    for path in recorded.rglob("*"):
        target = folder / path.relative_to(recorded)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    for name, text in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if text == "-":
            target.unlink()
        else:
            target.write_text(text)
    return System(folder)


def machine_of(case: dict[str, Any], kind: str, folder: Path) -> System:
    if "script" in case:
        path = folder / "train.py"
        path.write_text(case["script" if kind == "bad" else "good_script"])
        return System(folder, script=read_script(path))
    files = case.get("good", {}) | (bad_file(case) if kind == "bad" else {})
    return system_of(case["tree"], files, folder)


def bad_file(case: dict[str, Any]) -> dict[str, str]:
    """The one file that makes a machine bad: given, or the driver's answers as recorded but for some."""
    if "gpu" not in case:
        found: dict[str, str] = case["bad"]
        return found
    answers = json.loads((HERE / "trees" / case["tree"] / "nvml.json").read_text())
    answers["gpus"][0] |= json.loads(case["gpu"])
    return {"nvml.json": json.dumps(answers)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["probe"]))
def test_a_probe_passes_on_a_good_machine_and_finds_what_one_file_makes_bad(
    case: dict[str, Any], tmp_path: Path
) -> None:
    about = "script" if "script" in case else "machine"
    (one,) = [p for p in probes() if (p.item, p.about) == (case["probe"], about)]
    answers = {}
    for kind in ("good", "bad"):
        (tmp_path / kind).mkdir()
        (finding,) = examine(machine_of(case, kind, tmp_path / kind), [one])
        answers[kind] = finding.outcome
    assert answers["good"].status == "pass", answers["good"]
    assert answers["bad"].status == case["status"], answers["bad"]
    assert case["found"] in answers["bad"].found
    assert answers["bad"].wanted
    if "lines" in case:
        assert [int(place.rpartition(":")[2]) for place in answers["bad"].places] == case["lines"]


@pytest.mark.parametrize("case", [c for c in CASES if "tree" in c], ids=lambda case: str(case["probe"]))
def test_the_bad_machine_differs_in_one_file(case: dict[str, Any]) -> None:
    assert len(bad_file(case)) == 1


@pytest.mark.parametrize("tree", ["vm", "h200"])
def test_a_recorded_machine_names_nobody(tree: str) -> None:
    for path in (HERE / "trees" / tree).rglob("*"):
        text = f"{path.relative_to(HERE)} {path.read_text() if path.is_file() else ''}"
        assert not re.search(r"[0-9a-f]{32}|GPU-(?!00000000)|/(home|work|Users)/|sandbox", text), text


def test_every_probe_belongs_to_an_item_and_has_a_case() -> None:
    known = {(one.item, one.about) for one in probes()}
    assert {item for item, _ in known} <= set(items())
    assert known == {(c["probe"], "script" if "script" in c else "machine") for c in CASES}


def test_on_this_machine_every_probe_answers() -> None:
    findings = examine(System())
    assert len(findings) == len(probes())
    odd = [f for f in findings if "could not read what it found" in f.outcome.found]
    assert odd == []
    order = [STATUSES.index(f.outcome.status) for f in findings]
    assert order == sorted(order)


def test_a_machine_of_which_nothing_is_known_is_no_error(tmp_path: Path) -> None:
    findings = examine(System(tmp_path))
    assert {f.outcome.status for f in findings} <= {"unknown", "not_applicable"}
    assert not [f for f in findings if "could not read what it found" in f.outcome.found]
