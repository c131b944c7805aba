"""Every CPU case of the corpus through all checks of compare, the statistics left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.redteam.corpus import CASES, Case
from tests.redteam.judged import judge

from trackside.comparison.trial import Crew

# Tasks whose size is for the clock: what is checked without one is the same with fewer rows.
FEWER_ROWS = {
    "tasks/negate.py": ("4200, 2048", "420, 2048"),
    "tasks/softmax_wide.py": ("16, 131072", "3, 131072"),
}


def without_bulk(case: Case, folder: Path) -> Case:
    """The case with fewer rows, where those matter to the clock alone."""
    if case.baseline not in FEWER_ROWS:
        return case
    text = case.baseline_path.read_text(encoding="utf-8")
    many, few = FEWER_ROWS[case.baseline]
    assert text.count(many) == 1, f"{case.baseline} has another size by now"
    copy = folder / case.baseline_path.name
    copy.write_text(text.replace(many, few), encoding="utf-8")
    return replace(case, baseline=str(copy))


@pytest.mark.timeout(150)
@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "false"], ids=lambda c: c.name)
def test_false_candidate_is_stopped_unless_only_timing_can_tell(
    case: Case, crew: Crew, tmp_path: Path
) -> None:
    result = judge(without_bulk(case, tmp_path), crew, tmp_path)
    assert result.fits(case, full=False), result


@pytest.mark.timeout(150)
@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "honest"], ids=lambda c: c.name)
def test_honest_candidate_passes_every_check(case: Case, crew: Crew, tmp_path: Path) -> None:
    result = judge(without_bulk(case, tmp_path), crew, tmp_path)
    assert result.fits(case, full=False), result
