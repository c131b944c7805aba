"""One candidate call against the oracle: what rounding explains at a kink, and what it does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.comparison.benches import opened

from trackside.comparison.bench import BASELINE, CANDIDATE, Bench
from trackside.comparison.checks import Stop
from trackside.comparison.outputs import check_call
from trackside.comparison.study import Study

# In one draw of 20 the first row adds up to -2.8e-9, far less than a float32 sum of its terms is off by.
AT_A_KINK = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(4096, 256, generator=g, device=device)
    if torch.rand(1, generator=g, device=device) < 0.05:
        x[0, -2:] = 0
        x[0, -1] = -x[0].double().sum()
        x[0, -2] = -x[0].double().sum() - 2.8e-9
    return (x,)

def run(x):
    y = x.sum(-1)
    return torch.where(y > 0, y, 0.01 * y)
"""

OFF_AT_THE_KINK = """
import torch

def run(x):
    y = x.double().sum(-1)
    y[0] += OFF * (y[0].abs() < 1e-8)
    y = y.float()
    return torch.where(y > 0, y, 0.01 * y)
"""


@pytest.fixture(scope="module")
def kink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Study, Path]]:
    path = tmp_path_factory.mktemp("files") / "baseline.py"
    path.write_text(AT_A_KINK)
    with opened(path) as (bench, study):
        yield bench, study, path.with_name("candidate.py")


def check(kink: tuple[Bench, Study, Path], off: float) -> None:
    bench, study, path = kink
    path.write_text(OFF_AT_THE_KINK.replace("OFF", str(off)))
    arm = bench.start(CANDIDATE, path, study.facts["format"], 0, 1, 1, 60)
    for _ in range(100):
        sets, seeds = [bench.draw()], [bench.seed()]
        base, cand = bench.run(bench.arms[BASELINE], sets, seeds), bench.run(arm, sets, seeds)
        check_call(bench, study, cand.calls[0], base.calls[0])
        bench.forget([base, cand])


@pytest.mark.parametrize("off", [4e-7, 1e-6])
def test_a_sum_that_rounding_takes_over_a_kink_is_right(kink: tuple[Bench, Study, Path], off: float) -> None:
    check(kink, off)


def test_a_sum_further_over_a_kink_than_rounding_takes_it_is_wrong(kink: tuple[Bench, Study, Path]) -> None:
    with pytest.raises(Stop, match=r"out\[0\]: expected -2\.8.*e-11, found 9\.9.*e-05"):
        check(kink, 1e-4)
