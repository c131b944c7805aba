"""The order of runs when the clock goes back: `last` is what was started last, ids stay unique."""

from pathlib import Path

import pytest

from trackside.store.order import MARK_FILE
from trackside.store.retention import Retention, chosen, named, remove
from trackside.store.runs import RunStore

# 2026-11-15 14:30:12 UTC
NOON_NS = 1_794_753_012_000_000_000
SECOND_NS = 10**9
YEAR_NS = 365 * 86_400 * SECOND_NS


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ns = NOON_NS

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> RunStore:
    return RunStore(tmp_path, clock=clock)


def write(store: RunStore) -> str:
    run = store.new_run("lap")
    store.write_record(run, {"schema": "trackside.lap/1"})
    return run.id


def ids(store: RunStore) -> list[str]:
    return [run.id for run in RunStore(store.root).list()]


@pytest.mark.parametrize("back_ns", [1, SECOND_NS // 2, SECOND_NS, 3600 * SECOND_NS, 5 * YEAR_NS])
def test_a_run_after_the_clock_went_back_is_the_last(store: RunStore, clock: Clock, back_ns: int) -> None:
    clock.now_ns += SECOND_NS // 2 + 7
    made = [write(store)]
    clock.now_ns -= back_ns
    for _ in range(3):
        made.append(write(store))
        assert store.resolve("last") == made[-1]
        clock.now_ns += SECOND_NS // 5
    assert ids(store) == made[::-1]
    assert len(set(made)) == 4


@pytest.mark.parametrize("stamp", ["25540721-233434", "25550101-000000", "90000101-000000"])
def test_a_folder_named_after_a_time_that_no_clock_says_stops_no_run_and_is_not_the_last(
    store: RunStore, stamp: str
) -> None:
    (store.root / "runs" / f"l-{stamp}-aaaa").mkdir(parents=True)
    made = [write(store), write(store)]
    assert ids(store)[:2] == made[::-1]
    assert store.resolve("last") == made[-1]


def test_each_run_says_the_time_that_the_clock_said(store: RunStore, clock: Clock) -> None:
    write(store)
    clock.now_ns -= 3600 * SECOND_NS
    later = write(store)
    assert later.startswith("l-20261115-133012-")
    assert store.list()[0].started == "2026-11-15T13:30:12+00:00"


def test_runs_keep_their_order_when_the_clock_has_caught_up(store: RunStore, clock: Clock) -> None:
    made = [write(store)]
    clock.now_ns -= 3600 * SECOND_NS
    made.append(write(store))
    clock.now_ns += 2 * 3600 * SECOND_NS
    made.append(write(store))
    assert ids(store) == made[::-1]


def test_the_run_of_a_clock_that_was_ahead_may_be_removed(store: RunStore, clock: Clock) -> None:
    clock.now_ns += 5 * YEAR_NS
    ahead = write(store)
    clock.now_ns = NOON_NS
    made = [write(store)]
    remove(store, named(store, [ahead]))
    for _ in range(2):
        clock.now_ns += 60 * SECOND_NS
        made.append(write(store))
        assert store.resolve("last") == made[-1]
    assert ids(store) == made[::-1]
    # Retention goes by the same order.
    assert [removal.run.id for removal in chosen(store, Retention(keep_last=1))] == made[:2]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"order_ns": "x"}', '{"order_ns": -1}', '{"order_ns": 1e99}']
)
def test_a_broken_mark_costs_nothing_but_itself(store: RunStore, clock: Clock, content: str) -> None:
    write(store)
    clock.now_ns -= 60 * SECOND_NS
    write(store)
    (store.root / MARK_FILE).write_text(content)
    last = write(store)
    assert store.resolve("last") in ids(store)
    assert last in ids(store)


def test_a_clock_that_runs_right_leaves_no_mark(store: RunStore, clock: Clock) -> None:
    for _ in range(5):
        write(store)
        clock.now_ns += 1
    assert not (store.root / MARK_FILE).exists()
