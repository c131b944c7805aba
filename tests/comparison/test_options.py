"""What a comparison is asked, and what it takes where nothing is said."""

import pytest

from trackside.comparison.options import budget_of


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
