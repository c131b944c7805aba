"""Bytes as people say them."""

import pytest

from trackside.report.sizes import told_bytes


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (18_340, "18.3 kB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (-999_999_999, "-1 GB"),
        (53_240_000, "53.2 MB"),
        (1_500_000_000_000, "1.5 TB"),
    ],
)
def test_a_size_has_three_digits_and_a_unit(count: int, told: str) -> None:
    assert told_bytes(count) == told
