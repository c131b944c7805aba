"""Every GPU case of the corpus through all checks of compare on a real GPU, the statistics left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.redteam.corpus import Case
from tests.redteam.gpu.corpus import CASES
from tests.redteam.judged import judge

from trackside.comparison.trial import Crew, default_threads

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew(default_threads("cuda")) as made:
        yield made


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_gpu_candidate_gets_the_answer_that_its_case_allows(case: Case, crew: Crew, tmp_path: Path) -> None:
    result = judge(case, crew, tmp_path)
    assert result.fits(case, full=False), result
