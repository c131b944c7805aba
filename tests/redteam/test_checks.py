"""Every CPU case of the corpus through all checks of compare, the statistics left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.redteam.corpus import CASES, Case
from tests.redteam.judged import judge

from trackside.comparison.trial import Crew


@pytest.mark.timeout(150)
@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "false"], ids=lambda c: c.name)
def test_false_candidate_is_stopped_unless_only_timing_can_tell(
    case: Case, crew: Crew, tmp_path: Path
) -> None:
    result = judge(case, crew, tmp_path)
    assert result.fits(case, full=False), result


@pytest.mark.timeout(150)
@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "honest"], ids=lambda c: c.name)
def test_honest_candidate_passes_every_check(case: Case, crew: Crew, tmp_path: Path) -> None:
    result = judge(case, crew, tmp_path)
    assert result.fits(case, full=False), result
