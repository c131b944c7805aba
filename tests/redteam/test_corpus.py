"""The corpus is complete and says nothing that contradicts itself."""

import ast
from collections import Counter
from pathlib import Path

import pytest
from tests.redteam.corpus import CASES, CHECKS, HERE, Case

VERDICTS = {"rejected", "not-comparable", "equivalent", "faster", "slower", "inconclusive"}
FAMILIES = {"replay", "deferral", "theft", "sabotage", "arithmetic", "artefact", "no-new-work"}

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_names_are_unique() -> None:
    assert [name for name, n in Counter(case.name for case in CASES).items() if n > 1] == []


def test_every_candidate_file_belongs_to_a_case() -> None:
    listed = {case.candidate_path for case in CASES if case.device == "cpu"}
    present = {
        path
        for folder in ("false_cpu", "honest_cpu")
        for path in (HERE / folder).glob("*.py")
        if not path.name.startswith("_")  # helper modules, imported by candidates
    }
    assert present == listed


def test_every_task_is_used() -> None:
    used = {case.baseline_path for case in CASES}
    present = {path for path in (HERE / "tasks").iterdir() if not path.name.startswith("_")}
    assert present == used


def test_every_family_of_false_speedups_has_cases() -> None:
    assert {case.family for case in CASES if case.kind == "false"} == FAMILIES


@each_case
def test_expectation_is_consistent(case: Case) -> None:
    assert case.baseline_path.exists()
    assert case.candidate_path.exists()
    assert case.expect
    assert case.expect <= VERDICTS
    assert set(case.caught_by) <= CHECKS
    if case.kind == "false":
        assert "faster" not in case.expect
        assert not (case.output_wrong and "equivalent" in case.expect)
    else:
        assert "rejected" not in case.expect
        assert not case.output_wrong


@each_case
def test_candidate_says_what_it_does_in_at_most_three_lines(case: Case) -> None:
    doc = ast.get_docstring(ast.parse(Path(case.candidate_path).read_text()))
    assert doc
    assert len(doc.splitlines()) <= 3
