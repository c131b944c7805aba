"""Inputs that the baseline changes in some calls only: a licence for those, and for what it does there."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.comparison.benches import opened

from trackside.comparison.arms import BASELINE, CANDIDATE, Call
from trackside.comparison.audit import check_inputs
from trackside.comparison.bench import Bench
from trackside.comparison.checks import Stop
from trackside.comparison.study import Study

# Bites in one draw of nine.
GUARD = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, generator=g), torch.randn(1000, generator=g)

def run(x, y):
    if float(y[0]) > 1.2:
        x.mul_(2)
    return x.exp() + y.sum()
"""
# In most draws the step is lost in rounding.
STEP = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    step = torch.rand(1, generator=g)
    return torch.rand(1, generator=g) + 1, step * (1 if step > 0.4 else 2.0**-40)

def run(x, step):
    x.add_(step)
    return x * 2
"""


@dataclass
class Scene:
    """A real baseline beside a real candidate."""

    bench: Bench
    study: Study
    folder: Path

    def start(self, body: str) -> None:
        path = self.folder / "candidate.py"
        path.write_text(f"import torch\n\ndef run(x, y):\n    {body}\n")
        self.bench.start(CANDIDATE, path, self.study.facts["format"], 0, 1, 1, 60)

    def call(self, changed: bool) -> Call:
        """Both arms on a set of which the baseline changes an input, or none."""
        bench = self.bench
        while True:
            sets, seeds = [bench.draw()], [bench.seed()]
            bench.run(bench.arms[BASELINE], sets, seeds)
            found = bench.ask("inputs_changed", arm=BASELINE, slot=0, set=sets[0])["changed"]
            if bool(found) is changed:
                return bench.run(bench.arms[CANDIDATE], sets, seeds).calls[0]

    def check(self, changed: bool) -> None:
        call = self.call(changed)
        check_inputs(self.bench, self.bench.arms[CANDIDATE], self.study, 0, call)


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    path = tmp_path / "baseline.py"
    path.write_text(getattr(request, "param", GUARD))
    with opened(path) as (bench, study):
        yield Scene(bench, study, tmp_path)


HONEST = "x.mul_(1 + (y[0] > 1.2)); return x.exp() + y.sum()"


def test_an_input_that_the_baseline_changes_now_and_then_may_be_changed_like_that(scene: Scene) -> None:
    assert scene.bench.contract["inputs"] == [], "the first draws were to show nothing"
    scene.start(HONEST)
    scene.check(changed=False)
    scene.check(changed=True)
    assert scene.bench.contract["inputs"] == [0]
    assert scene.bench.ledger.results["inputs-unchanged"].status == "pass"
    for changed in (False, True):
        assert "in:0" in [leaf["path"] for leaf in scene.call(changed).leaves]
        scene.check(changed)


@pytest.mark.parametrize(
    ("body", "check"),
    [
        ("x = x * 2 if y[0] > 1.2 else x; return x.exp() + y.sum()", "output-matches-oracle"),
        ("x.mul_(1 + 1.001 * (y[0] > 1.2)); return x.exp() + y.sum()", "output-matches-oracle"),
        (f"y[7] = 0; {HONEST}", "inputs-unchanged"),
    ],
    ids=["left alone", "changed otherwise", "another one changed"],
)
def test_where_the_baseline_changes_an_input_the_candidate_must_do_the_same_and_no_more(
    scene: Scene, body: str, check: str
) -> None:
    scene.start(body)
    with pytest.raises(Stop) as stopped:
        scene.check(changed=True)
    assert stopped.value.check == check


@pytest.mark.parametrize("known", [False, True], ids=["before it was seen", "once it was seen"])
def test_where_the_baseline_leaves_that_input_alone_not_one_bit_of_it_may_change(
    scene: Scene, known: bool
) -> None:
    if known:
        scene.start(HONEST)
        scene.check(changed=True)
        assert scene.bench.contract["inputs"] == [0]
    scene.start("x.mul_(2 if y[0] > 1.2 else 1 + 2.0**-22); return x.exp() + y.sum()")
    with pytest.raises(Stop, match=r"input 0.*the baseline leaves it alone") as stopped:
        scene.check(changed=False)
    assert stopped.value.check == "inputs-unchanged"


@pytest.mark.parametrize("scene", [STEP], indirect=True)
def test_a_change_that_the_baseline_s_rounding_swallows_may_show_in_another_s(scene: Scene) -> None:
    assert scene.bench.contract["inputs"] == [0]
    scene.start("x.copy_(torch.nextafter(x + y, torch.tensor(9.0))); return x * 2")
    scene.check(changed=False)


def test_inputs_are_looked_at_even_where_the_candidate_made_the_slots_grow_just_then(scene: Scene) -> None:
    scene.start("y[7] = 0; return torch.zeros(64, 20_000)[:, 0].copy_(x.exp() + y.sum())")
    with pytest.raises(Stop, match="input 1, element 7"):
        scene.check(changed=False)
