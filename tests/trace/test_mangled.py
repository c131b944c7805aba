"""Real traces with damage anywhere: what is left is read, what is lost is told, and nothing falls over."""

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from tests.trace.real import text_of

from trackside.records.errors import TracksideError
from trackside.trace import file
from trackside.trace.critical_path import critical_path
from trackside.trace.dependencies import task_graph
from trackside.trace.links import forward_of, launch_of, lost_launches, parents
from trackside.trace.model import COLUMNS, Trace
from trackside.trace.reader import read_trace
from trackside.trace.schedule import schedule
from trackside.trace.steps import find_steps
from trackside.trace.timeline import breakdown, main_thread, ran_longest
from trackside.trace.trimmed import write_trimmed

GARBAGE = (b"\x00", b"\xff\xfe", b"}", b"{", b'"', b"]", b",", b"\n", b"nan", b"  {\n    ", b'"ts": -1e999, ')


def sound(trace: Trace, path: Path, details: bool = True) -> None:
    """Columns belong together, and every question has an answer."""
    assert {len(getattr(trace, name)) for name in COLUMNS} == {len(trace)}
    assert (np.diff(trace.start) >= 0).all()
    assert (trace.duration >= 0).all()
    if not len(trace):
        return
    assert trace.name.max() < len(trace.names)
    assert trace.lane.max() < len(trace.lanes)
    steps = find_steps(trace)
    begin, end = int(steps.begin[0]), int(steps.end[-1])
    assert breakdown(trace, begin, end).total == end - begin
    ran_longest(trace, begin, end)
    main_thread(trace)
    lost_launches(trace)
    launch_of(trace, trace.on_device)
    forward_of(trace, parents(trace))
    graph = task_graph(trace, steps).graph
    if graph.task_count:
        assert critical_path(graph, schedule(graph)).total_ns == schedule(graph).makespan_ns
    if not details:
        return  # Texts of arguments were not looked at.
    told = write_trimmed(path, trace, path.with_name("trimmed.json"), begin, end)
    trimmed = read_trace(path.with_name("trimmed.json"))
    assert len(trimmed) == told.events
    assert told.left_out <= 5 + 0.05 * len(trace)
    assert trimmed.cuts == ()
    json.loads(path.with_name("trimmed.json").read_text())


def tried(path: Path, details: bool = True) -> Trace | str:
    """What is read, or the kind of error where the file is refused."""
    try:
        return read_trace(path, details=details)
    except TracksideError as error:
        return error.kind


def mangled(text: bytes, dice: random.Random) -> bytes:
    """One damage: a byte changed, garbage put in, a part lost, repeated, or moved elsewhere."""
    at, length = dice.randrange(len(text)), dice.choice((1, 5, 40, 300, 3000))
    part = text[at : at + length]
    elsewhere = dice.randrange(len(text))
    return dice.choice(
        (
            text[:at] + bytes([dice.randrange(256)]) + text[at + 1 :],
            text[:at] + dice.choice(GARBAGE) + text[at:],
            text[:at] + text[at + length :],
            text[:at] + part + part + text[at + length :],
            text[:elsewhere] + part + text[elsewhere:],
        )
    )


@pytest.mark.parametrize("details", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_one_damage_costs_a_few_events_and_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, details: bool
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(file, "_BLOCK_BYTES", dice.choice((5_000, 40_000, 1 << 22)))
    whole = text_of("graph")
    (tmp_path / "whole.json").write_bytes(whole)
    expected = len(read_trace(tmp_path / "whole.json"))
    path = tmp_path / "a.json"
    path.write_bytes(mangled(whole, dice))
    trace = tried(path, details)
    if isinstance(trace, str):
        # Only where the damage hit the few bytes before the list of events.
        assert trace == "usage"
        assert b'"traceEvents": [' not in path.read_bytes()
        return
    sound(trace, path, details)
    assert len(trace) > expected - 40
    if len(trace) < expected:
        lost_text = len(path.read_bytes()) < len(whole) - 100
        assert trace.cuts or lost_text


@pytest.mark.parametrize("seed", range(20))
def test_much_damage_and_an_early_end_fall_over_nothing(tmp_path: Path, seed: int) -> None:
    dice = random.Random(1000 + seed)
    text = text_of(dice.choice(("graph", "infer")))
    for _ in range(dice.choice((3, 30, 300))):
        text = mangled(text, dice)
    text = text[: dice.randrange(len(text) // 2, len(text))]
    path = tmp_path / "a.json"
    path.write_bytes(text)
    trace = tried(path)
    if isinstance(trace, str):
        assert trace == "usage"
        return
    sound(trace, path)
    assert trace.cuts


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_archive_gives_what_comes_before_or_is_refused(tmp_path: Path, seed: int) -> None:
    dice = random.Random(2000 + seed)
    packed = mangled(gzip.compress(text_of("infer"), mtime=0), dice)
    path = tmp_path / "a.json.gz"
    path.write_bytes(packed)
    trace = tried(path)
    if isinstance(trace, str):
        assert trace == "usage"
        return
    sound(trace, path)
    assert trace.cuts or len(trace) >= 1741


def test_an_archive_that_ends_early_gives_all_that_can_be_unpacked(tmp_path: Path) -> None:
    whole = text_of("infer")
    packed = gzip.compress(whole, mtime=0)
    path = tmp_path / "a.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    trace = read_trace(path)
    assert "damaged" in trace.cuts[0].why
    assert len(trace) > 500

    path.write_bytes(packed[:12])
    with pytest.raises(TracksideError, match="damaged") as refused:
        read_trace(path)
    assert refused.value.kind == "usage"
