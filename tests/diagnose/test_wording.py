"""Numbers in the sentences of findings."""

import pytest

from trackside.diagnose.wording import count, many


@pytest.mark.parametrize(
    ("number", "told"),
    [(7.0, "7"), (6.996, "7"), (0.998, "1"), (9.97, "10"), (2.5, "2.5"), (1285.2, "1285")],
)
def test_a_call_more_at_the_window_s_edge_makes_no_fraction(number: float, told: str) -> None:
    assert count(number) == told


@pytest.mark.parametrize(
    ("number", "told"), [(1.0, "1 kernel"), (0.998, "1 kernel"), (1.5, "1.5 kernels"), (24.0, "24 kernels")]
)
def test_one_is_told_as_one(number: float, told: str) -> None:
    assert many(number, "kernel") == told


def test_a_plural_of_its_own_is_used() -> None:
    assert (many(1, "copy", "copies"), many(2, "copy", "copies")) == ("1 copy", "2 copies")
