"""What a comparison is asked, and what it takes where nothing is said."""

import os
from pathlib import Path

import pytest

from trackside.comparison.options import Options, budget_of
from trackside.records.errors import TracksideError


@pytest.mark.parametrize(
    ("asked", "quick", "seconds"), [(None, False, 60.0), (None, True, 15.0), (40.0, True, 40.0)]
)
def test_a_first_look_has_less_time_unless_another_is_asked_for(
    asked: float | None, quick: bool, seconds: float
) -> None:
    assert budget_of(asked, quick) == seconds


def test_on_a_gpu_a_comparison_has_less_time_unless_more_is_asked_for() -> None:
    assert budget_of(None, False, "cuda:1") == 40.0
    assert budget_of(90.0, False, "cuda") == 90.0
    assert budget_of(None, True, "cuda") == 15.0


def test_more_threads_than_cores_are_refused() -> None:
    cores = len(os.sched_getaffinity(0))
    Options(Path("a.py"), Path("b.py"), threads=cores).check()
    with pytest.raises(TracksideError, match=f"found --threads 999, and {cores} cores") as refused:
        Options(Path("a.py"), Path("b.py"), threads=999).check()
    assert refused.value.kind == "usage"
