"""Operators of the traced window find their lines in the attributed one, which begins elsewhere in a step."""

from pathlib import Path

import pytest
from tests.profiling.test_capture import profiled

from trackside.diagnose.evidence import gather
from trackside.profiling.captured import read_capture

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


@pytest.mark.timeout(120)
def test_each_of_several_like_operators_finds_its_own_line(tmp_path: Path) -> None:
    ended, _ = profiled(tmp_path, PROGRAM, "4")
    assert ended.exit_code == 0
    evidence = gather(read_capture(tmp_path / "results"))
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
