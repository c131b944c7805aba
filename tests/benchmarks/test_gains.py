"""The pairs of the benchmark of gains are whole, and its clock of steps tells steps."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.gains import CLOCK, PAIRS, rule_of

from trackside.diagnose.diagnosis import all_rules

BROKEN = sorted(PAIRS.glob("*_broken.py"))


def test_there_are_enough_pairs() -> None:
    assert len(BROKEN) >= 8


@pytest.mark.parametrize("program", BROKEN, ids=lambda path: path.stem)
def test_a_pair_is_whole_and_about_a_rule_that_exists(program: Path) -> None:
    twin = program.with_name(program.name.replace("_broken", "_repaired"))
    assert rule_of(program) in all_rules()
    assert rule_of(twin) == rule_of(program)
    assert twin.read_text() != program.read_text()


def test_the_clock_gives_the_time_of_every_step_and_swallows_what_is_printed(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import torch, time\nw = torch.nn.Parameter(torch.zeros(2))\no = torch.optim.SGD([w], lr=0.1)\n"
        "for _ in range(4):\n    print('noise')\n    w.grad = torch.ones(2)\n"
        "    time.sleep(0.02)\n    o.step()\n"
    )
    done = subprocess.run([sys.executable, str(CLOCK), str(program)], capture_output=True, check=True)
    steps = json.loads(done.stdout)
    assert len(steps) == 3
    assert min(wall for wall, _ in steps) >= 20_000_000
    # Asleep it takes no time of its own.
    assert all(own < wall for wall, own in steps)
