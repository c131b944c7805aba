"""Operators of the traced window find their lines in the attributed one, which begins elsewhere in a step."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.profiling.test_capture import profiled

from trackside.diagnose.evidence import gather
from trackside.profiling.captured import Captured, read_capture
from trackside.profiling.line_stacks import Line
from trackside.profiling.sources import Sources

# Four additions on four lines, and nothing else that would tell them apart.
PROGRAM = """
import sys, time, torch
torch.set_num_threads(1)
x = torch.randn(200, 200)

def turn(a):
    a = a + 1
    b = a @ x
    b = b + 2
    b = b + 3
    c = torch.relu(b)
    c = c + 4
    return c.sum()

until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    turn(x)
"""
LINES = dict(enumerate(PROGRAM.split("\n"), 1))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, which has run; beside it is what was captured."""
    folder = tmp_path_factory.mktemp("places")
    ended, _ = profiled(folder, PROGRAM, "4")
    assert ended.exit_code == 0
    return folder / "train.py"


@pytest.fixture(scope="module")
def captured(script: Path) -> Captured:
    return read_capture(script.parent / "results")


def test_a_source_that_changed_after_the_capture_is_read_as_it_was(script: Path, captured: Captured) -> None:
    script.write_text(f"# A line more.\n{PROGRAM}")
    product = next(number for number, text in LINES.items() if "a @ x" in text)
    place = Line(str(script), product)
    evidence = gather(captured)
    assert evidence is not None
    source = evidence.source(place)
    assert source is not None
    assert source.text(product) == "b = a @ x"
    # What the capture did not keep is read from the disk.
    without = gather(replace(captured, sources=Sources()))
    assert without is not None
    changed = without.source(place)
    assert changed is not None
    assert changed.text(product + 1) == "b = a @ x"


@pytest.mark.timeout(120)
def test_each_of_several_like_operators_finds_its_own_line(captured: Captured) -> None:
    evidence = gather(captured)
    assert evidence is not None
    begin, end = int(evidence.steps.begin[1]), int(evidence.steps.end[1])
    found: dict[str, list[str]] = {}
    for row in evidence.ops().tolist():
        if not begin <= evidence.trace.start[row] < end:
            continue
        line = evidence.places.line(row)
        assert line is not None
        found.setdefault(evidence.trace.name_of(row), []).append(LINES[line.line].strip())
    assert sorted(found["aten::add"]) == ["a = a + 1", "b = b + 2", "b = b + 3", "c = c + 4"]
    assert found["aten::matmul"] == ["b = a @ x"]
    assert found["aten::relu"] == ["c = torch.relu(b)"]
    # In the order of the program, from wherever this window's steps begin.
    order = ["a = a + 1", "b = b + 2", "b = b + 3", "c = c + 4"]
    at = order.index(found["aten::add"][0])
    assert found["aten::add"] == order[at:] + order[:at]
