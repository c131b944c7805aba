"""Timed calls beside the baseline's on the same inputs: what looks wrong there goes before the oracle."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.comparison.benches import opened

from trackside.comparison import tolerance
from trackside.comparison.arms import BASELINE, CANDIDATE, Call
from trackside.comparison.bench import Bench
from trackside.comparison.outputs import suspicious
from trackside.comparison.study import Study
from trackside.comparison.trial import Options, run_trial

# -- one call ------------------------------------------------------------------------------------------

SEVERAL_OUTPUTS = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 256, generator=g, device=device),)

def run(x):
    out = {"y": x.sigmoid() + 1, "best": x.argmax(-1), "copy": x.clone(), "sum": x.abs().sum().item()}
    return out | {"tiny": x * 1e-41}
"""

CHANGED = """
import torch

def run(x):
    out = {"y": x.sigmoid() + 1, "best": x.argmax(-1), "copy": x.clone(), "sum": x.abs().sum().item()}
    out["tiny"] = x * 1e-41
    CHANGE
    return out
"""


@dataclass
class Screen:
    """A real reference process and baseline; candidates come and go."""

    bench: Bench
    study: Study
    folder: Path
    format: str

    def calls(self, change: str) -> tuple[Call, Call]:
        """A candidate's call and the baseline's on the same inputs; `change` edits a right output `out`."""
        path = self.folder / "candidate.py"
        path.write_text(CHANGED.replace("CHANGE", change))
        bench = self.bench
        arm = bench.start(CANDIDATE, path, self.format, 0, 1, 1, 60)
        sets, seeds = [bench.draw()], [bench.seed()]
        (standard,) = bench.run(bench.arms[BASELINE], sets, seeds).calls
        (call,) = bench.run(arm, sets, seeds).calls
        return call, standard

    def finds(self, change: str) -> bool:
        return suspicious(self.bench, self.study, *self.calls(change))


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screen]:
    folder = tmp_path_factory.mktemp("files")
    path = folder / "baseline.py"
    path.write_text(SEVERAL_OUTPUTS)
    with opened(path) as (bench, study):
        yield Screen(bench, study, folder, study.facts["format"])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("pass", id="the same bits"),
        pytest.param('out["y"] = (x.double().sigmoid() + 1).float()', id="other rounding"),
        pytest.param('out["sum"] = out["sum"] * (1 + 1e-7)', id="other rounding of a plain float"),
    ],
)
def test_an_honest_call_is_not_suspicious(screen: Screen, change: str) -> None:
    before = screen.study.screened
    assert not screen.finds(change)
    assert screen.study.screened == before + 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param('out["y"][3, 5] *= 1.001', id="one element slightly off"),
        pytest.param('out["y"] *= 1 + 1e-5', id="all elements a little off"),
        pytest.param('out["y"][3, 5] = float("nan")', id="one NaN"),
        pytest.param('out["best"][7] ^= 1', id="one integer off by one"),
        pytest.param('out["sum"] *= 1.001', id="a plain float slightly off"),
        pytest.param('out["copy"] = x', id="the input itself for a copy of it"),
        pytest.param('out["y"] = out["y"].double()', id="another type"),
        pytest.param('out["y"] = out["y"][:-1].clone()', id="another shape"),
        pytest.param('del out["best"]', id="an output missing"),
        pytest.param('del out["sum"]', id="the last output missing"),
        pytest.param('out["total"] = out.pop("sum")', id="an output renamed"),
        pytest.param('out["more"] = x + 1', id="an output too many"),
        pytest.param('out["tiny"] = x * 0', id="an output made of subnormals flushed"),
    ],
)
def test_a_call_that_is_wrong_anywhere_is_suspicious(screen: Screen, change: str) -> None:
    assert screen.finds(change)


def test_both_arms_may_be_off_the_oracle_so_a_quarter_more_than_the_allowance_is_not_suspicious(
    screen: Screen,
) -> None:
    call, standard = screen.calls('out["y"][3, 5] *= 1.001')
    rows = screen.bench.ask(
        "screen", call=call.id, other=standard.id, leaves=call.leaves, other_leaves=standard.leaves
    )["leaves"]
    (row,) = [row for row in rows if not row.get("same")]
    unit = tolerance.allow(screen.study.bins[row["path"]], row["dtype"], {"rms": 1.0, "max": 1.0})
    apart = max(largest / unit[name].largest for name, (_, _, largest, _) in row["bins"].items())

    def at(times: float) -> bool:
        """With the call so many times as far from the baseline's as the candidate may be from the oracle."""
        study = replace(screen.study, declared={"rms": 1.0, "max": apart / times})
        return suspicious(screen.bench, study, call, standard)

    assert not at(0.9)
    assert not at(1.2)
    assert at(1.3)


def test_magnitudes_of_which_the_baseline_s_error_is_not_known_are_for_the_oracle(screen: Screen) -> None:
    call, standard = screen.calls('out["y"] = (x.double().sigmoid() + 1).float()')
    assert not suspicious(screen.bench, screen.study, call, standard)
    # All values of `y` are of one magnitude: what was learned at another says nothing of it.
    elsewhere = {
        path: {str(int(name) - 5): errors for name, errors in bins.items()}
        for path, bins in screen.study.bins.items()
    }
    assert suspicious(screen.bench, replace(screen.study, bins=elsewhere), call, standard)
    assert suspicious(screen.bench, replace(screen.study, bins={}), call, standard)


# -- a whole comparison --------------------------------------------------------------------------------

# Its oracle is quick in audit and probes and so slow afterwards that hardly a timed call comes before it: a
# candidate that is rarely wrong meets the screen alone. `timing` is there when the audit is over; ten more
# answers are for the floor, and for the first quad.
SLOW_ORACLE = """
import time
from pathlib import Path
from typing import Any
import torch

answered = 0

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(128, 512, generator=g, device=device),)

def run(x):
    return x.sigmoid() + 1

def reference(x):
    global answered
    if Path(__file__).with_name("timing").exists():
        answered += 1
        if answered > 10:
            time.sleep(2)
    return x.sigmoid() + 1
"""

RARELY_WRONG = """
calls = 0

def run(x):
    global calls
    calls += 1
    out = x.sigmoid() + 1
    if calls >= 60 and calls % 12 == 0:
        out[17, 4] *= 1.001
    return out
"""


@pytest.mark.slow
def test_one_slightly_wrong_element_in_every_twelfth_call_after_the_audit_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(SLOW_ORACLE)
    (tmp_path / "new.py").write_text(RARELY_WRONG)

    def follow(event: dict[str, Any]) -> None:
        if event["phase"] == "floor":
            (tmp_path / "timing").touch()

    options = Options(tmp_path / "base.py", tmp_path / "new.py", budget=20, pairs=2, store=tmp_path / "store")
    record = run_trial(options, follow)
    assert (tmp_path / "timing").exists()
    assert record.verdict == "rejected"
    assert [check.id for check in record.checks if check.status == "fail"] == ["output-matches-oracle"]
    assert "timed call" in record.reasons[0]
    assert "[17, 4]" in record.reasons[0]
