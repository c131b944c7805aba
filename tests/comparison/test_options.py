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
