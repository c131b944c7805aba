"""Which runs are meant: ids with typing errors, ages, dates, sizes, and what fits a filter."""

from pathlib import Path

import pytest

from trackside.records.errors import TracksideError
from trackside.store.entry import Entry
from trackside.store.selection import RunFilter, age_ns, moment_ns, nearest_ids, run_with_id, size_bytes

IDS = ["c-20261115-143012-7f3a", "c-20261115-143512-00aa", "p-20261116-090000-beef", "d-20260102-101112-1234"]

# 2026-11-15 14:30:12 UTC
NOON_NS = 1_794_753_012_000_000_000
HOUR_NS = 3600 * 10**9


@pytest.mark.parametrize(
    ("reference", "nearest"),
    [
        ("c-20261115-143012-7f3b", IDS[0]),
        ("c-20261115-14301-7f3a", IDS[0]),
        ("c-2026115-143012-7f3a", IDS[0]),
        ("C-20261115-143012-7F3A", IDS[0]),
        ("p-20261115-143012-7f3a", IDS[0]),
        ("c-20261115-143021-7f3a", IDS[0]),
        ("7f3a", IDS[0]),
        ("beef", IDS[2]),
        ("090000", IDS[2]),
        ("d-20620102", IDS[3]),
        ("runs/d-20260102-101112-1234", IDS[3]),
    ],
)
def test_an_unknown_id_names_the_nearest(reference: str, nearest: str) -> None:
    with pytest.raises(TracksideError, match=f"nearest: {nearest}") as caught:
        run_with_id(reference, IDS, "here")
    assert caught.value.kind == "not-found"


@pytest.mark.parametrize("reference", ["", "x", "zzzz", "../../etc/passwd", "\x00", "é" * 500])
def test_what_is_like_no_id_names_none(reference: str) -> None:
    assert nearest_ids(reference, IDS) == []


def test_at_most_three_are_named() -> None:
    many = [f"c-20261115-143012-{number:04x}" for number in range(2000)]
    assert len(nearest_ids("c-20261115-143012-zzzz", many)) == 3


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("12h", 43200), ("7d", 604800), (" 2w ", 1209600)]
)
def test_an_age_is_a_number_with_a_unit(text: str, seconds: int) -> None:
    assert age_ns(text) == seconds * 10**9
    assert moment_ns(text, NOON_NS) == NOON_NS - seconds * 10**9


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "-7d", "7.5d", "1e3d", "9999999d", "7D"])
def test_what_is_no_age_is_wrong_use(text: str) -> None:
    with pytest.raises(TracksideError, match="needed: an age") as caught:
        age_ns(text)
    assert caught.value.kind == "usage"


@pytest.mark.parametrize(
    ("text", "end", "hours"),
    [
        ("2026-11-15", False, 0.0),
        ("2026-11-15", True, 24.0),
        ("20261115", True, 24.0),
        ("2026-11-15T09:30", False, 9.5),
        ("2026-11-15 09:30", True, 9.5),
        ("2026-11-15T09:30+02:00", False, 7.5),
    ],
)
def test_a_date_is_in_utc_and_ends_with_its_day(text: str, end: bool, hours: float) -> None:
    midnight_ns = NOON_NS - (14 * 3600 + 30 * 60 + 12) * 10**9
    assert moment_ns(text, NOON_NS, end=end) == midnight_ns + round(hours * HOUR_NS)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "15.11.2026", "9999-12-31T23:59:59-23:59x"])
def test_what_is_no_time_is_wrong_use(text: str) -> None:
    with pytest.raises(TracksideError, match="needed: an age such as") as caught:
        moment_ns(text, NOON_NS)
    assert caught.value.kind == "usage"


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("0", 0),
        ("1000", 1000),
        ("2GB", 2 * 10**9),
        ("1.5 GiB", 3 << 29),
        ("10kB", 10_000),
        ("10KiB", 10_240),
        ("3m", 3_000_000),
        ("5 B", 5),
    ],
)
def test_a_size_has_the_units_of_disks_and_of_memory(text: str, bytes_: int) -> None:
    assert size_bytes(text) == bytes_


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "2 gigabytes", "1e9", "2PB", "0x10", "inf"])
def test_what_is_no_size_is_wrong_use(text: str) -> None:
    with pytest.raises(TracksideError, match="needed: a size") as caught:
        size_bytes(text)
    assert caught.value.kind == "usage"


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (RunFilter(), True),
        (RunFilter(verb="compare"), True),
        (RunFilter(verb="profile"), False),
        (RunFilter(verdict="faster"), True),
        (RunFilter(verdict="slower"), False),
        (RunFilter(state="done"), True),
        (RunFilter(state="died"), False),
        (RunFilter(since_ns=NOON_NS), True),
        (RunFilter(since_ns=NOON_NS + 1), False),
        (RunFilter(until_ns=NOON_NS + 1), True),
        (RunFilter(until_ns=NOON_NS), False),
        (RunFilter(about="SOFTMAX"), True),
        (RunFilter(about="matmul"), False),
        (RunFilter(verb="compare", verdict="slower"), False),
    ],
)
def test_a_run_must_fit_all_of_a_filter(wanted: RunFilter, fits: bool) -> None:
    about = str(Path("softmax/old.py → new.py"))
    entry = Entry(IDS[0], "compare", NOON_NS, NOON_NS, "done", "faster", True, about)
    assert wanted.fits(entry) is fits
    if wanted.about is not None:
        assert not wanted.fits(entry._replace(about=None))


def test_what_looks_like_no_id_is_answered_with_the_newest() -> None:
    known = ["p-20261118-055350-48f7", "c-20261119-000000-0000", "z-20261101-000000-0000"]
    with pytest.raises(TracksideError, match="the newest by its name: c-20261119-000000-0000") as caught:
        run_with_id("nosuch", known, "/store")
    assert caught.value.kind == "not-found"
