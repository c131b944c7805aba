"""One candidate call against the oracle: what rounding explains at a kink, and what it does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.comparison.benches import opened

from trackside.comparison import outputs
from trackside.comparison.arms import BASELINE, CANDIDATE
from trackside.comparison.baseline import learn
from trackside.comparison.bench import Bench
from trackside.comparison.checks import Ledger, Stop
from trackside.comparison.outputs import _times, check_call
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


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy cores may keep the oracle longer than a comparison waits for it; what it says is tested here."""
    monkeypatch.setattr(outputs, "_JUMP_SECONDS", 60.0)


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
    # None of so many meets the kink one time in 2,000.
    for _ in range(150):
        sets, seeds = [bench.draw()], [bench.seed()]
        base, cand = bench.run(bench.arms[BASELINE], sets, seeds), bench.run(arm, sets, seeds)
        check_call(bench, study, cand.calls[0], base.calls[0])
        bench.ledger.settle()
        bench.forget([base, cand])


@pytest.mark.parametrize("off", [4e-7, 1e-6])
def test_a_sum_that_rounding_takes_over_a_kink_is_right(kink: tuple[Bench, Study, Path], off: float) -> None:
    check(kink, off)
    assert kink[1].checked >= 150


@pytest.mark.slow
def test_a_sum_further_over_a_kink_than_rounding_takes_it_is_wrong(kink: tuple[Bench, Study, Path]) -> None:
    with pytest.raises(Stop, match=r"out\[0\]: expected -2\.[78].*e-11, found 9\.9.*e-05"):
        check(kink, 1e-4)


# In one draw of 20 the first point lies as good as in the middle between two entries of the table.
NEAREST = """
import torch

def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(8, 16, generator=g, device=device)

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(4096, 16, generator=g, device=device)
    tie = torch.rand(1, generator=g, device=device) < 0.05
    return x, tie.float()

def run(table, x, tie):
    x = x.clone()
    x[0] = torch.where(tie > 0, (table[0] + table[1]) / 2 + 1e-8, x[0])
    return table[(x[:, None] - table).square().sum(-1).argmin(-1)]
"""

EXPANDED = """
def run(table, x, tie):
    x = x.clone()
    x[0] = torch.where(tie > 0, (table[0] + table[1]) / 2 + 1e-8, x[0])
    return table[(table.square().sum(-1) - 2 * x @ table.T).argmin(-1)]
"""

WRONG_AT_ONE = """
def run(table, x, tie):
    out = table[(x[:, None] - table).square().sum(-1).argmin(-1)]
    out[7] = table[(x[7] - table).square().sum(-1).argmax()]
    return out
"""

# Forty sums lie so close to the threshold that the baseline itself jumps by a half there.
THRESHOLD = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    a, b = (torch.randn(512, 512, generator=g, device=device) for _ in range(2))
    b[0, :40] = 0.7 - a[0, :40]
    return a, b

def run(a, b):
    y = a + b
    return torch.where(y > 0.7, torch.tanh(y), 0.0)
"""

NARROW_AFTER = """
def run(a, b):
    y = a + b
    return torch.where(y > 0.7, torch.tanh(y.bfloat16()).float(), 0.0)
"""

WIDER = """
def run(a, b):
    y = a.double() + b
    return torch.where(y > 0.7, torch.tanh(y), 0.0).float()
"""


def check_calls(baseline: str, candidate: str, folder: Path, calls: int, learnt: int = 0) -> None:
    """Calls of a candidate beside the baseline's; so many more of the baseline's are learnt from before."""
    base, cand = folder / "baseline.py", folder / "candidate.py"
    base.write_text(baseline)
    cand.write_text(f"import torch\n{candidate}")
    with opened(base) as (bench, study):
        arm = bench.start(CANDIDATE, cand, study.facts["format"], 0, 1, 1, 60)
        for turn in range(learnt + calls):
            sets, seeds = [bench.draw()], [bench.seed()]
            slots = [bench.run(bench.arms[BASELINE], sets, seeds)]
            if turn < learnt:
                learn(bench, study, slots[0].calls[0])
            else:
                slots.append(bench.run(arm, sets, seeds))
                check_call(bench, study, slots[1].calls[0], slots[0].calls[0])
                bench.ledger.settle()
            bench.forget(slots)


@pytest.mark.parametrize("candidate", [NEAREST, EXPANDED], ids=["the same code", "distances expanded"])
def test_a_near_tie_that_falls_the_other_way_is_right_in_what_is_looked_up_too(
    candidate: str, tmp_path: Path
) -> None:
    check_calls(NEAREST, candidate, tmp_path, 60)


def test_one_row_that_is_looked_up_wrongly_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(Stop, match=r"out\[7, \d+\]"):
        check_calls(NEAREST, WRONG_AT_ONE, tmp_path, 1)


def test_a_jump_of_the_baseline_s_gives_no_licence_to_the_elements_beside_it(tmp_path: Path) -> None:
    check_calls(THRESHOLD, WIDER, tmp_path, 4, learnt=12)
    with pytest.raises(Stop, match="times what is allowed"):
        check_calls(THRESHOLD, NARROW_AFTER, tmp_path, 4, learnt=12)


QUANTISED = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1024, 256, generator=g, device=device).to(torch.DTYPE),)

def run(x):
    return (x / 0.3).round() * 0.3
"""

BY_THE_INVERSE = """
def run(x):
    return (x * (1 / 0.3)).round() * 0.3
"""

TRUNCATED = """
def run(x):
    return (x / 0.3).trunc() * 0.3
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_steps_that_rounding_takes_the_other_way_are_right_and_other_steps_are_not(
    dtype: str, tmp_path: Path
) -> None:
    baseline = QUANTISED.replace("DTYPE", dtype)
    check_calls(baseline, BY_THE_INVERSE, tmp_path, 12, learnt=4)
    with pytest.raises(Stop, match="times what is allowed"):
        check_calls(baseline, TRUNCATED, tmp_path, 1, learnt=4)


LARGE_LOGITS = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return ((10 * torch.randn(512, 512, generator=g, device=device)).bfloat16(),)

def run(x):
    return torch.softmax(x.float(), -1).bfloat16()
"""

FEW_ROWS_OF_ZEROS = """
def run(x):
    out = torch.softmax(x.float(), -1).bfloat16()
    out[:8] = 0
    return out
"""

OF_ITS_OWN_TYPE = """
def run(x):
    return torch.softmax(x, -1)
"""


def test_a_few_rows_left_out_are_not_explained_by_what_rounding_does_to_them(tmp_path: Path) -> None:
    check_calls(LARGE_LOGITS, OF_ITS_OWN_TYPE, tmp_path, 4, learnt=4)
    with pytest.raises(Stop, match="times what is allowed"):
        check_calls(LARGE_LOGITS, FEW_ROWS_OF_ZEROS, tmp_path, 1, learnt=4)


RARE_LEAF = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(64, generator=g, device=device)
    rare = torch.rand(1, generator=g, device=device) < 0.02
    return x, rare

def run(x, rare):
    return {"y": x + 1, "more": torch.exp(x[: 64 * int(rare)])}
"""

RARELY_WRONG = """
def run(x, rare):
    return {"y": x + 1, "more": torch.zeros(64 * int(rare))}
"""


def test_an_output_that_no_learnt_call_had_is_held_to_the_baseline_s_error_on_the_same_inputs(
    tmp_path: Path,
) -> None:
    check_calls(RARE_LEAF, RARE_LEAF, tmp_path, 200)
    with pytest.raises(Stop, match=r"out\['more'\]"):
        check_calls(RARE_LEAF, RARELY_WRONG, tmp_path, 200)


PRODUCT = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return [torch.randn(256, 256, generator=g, device=device) for _ in range(2)]

def run(a, b):
    return a @ b
"""

OF_FEWER_BITS = """
def run(a, b):
    return ((a.view(torch.int32) + 128 & ~255).view(torch.float32)) @ b
"""


def test_what_no_jump_explains_is_wrong_however_slow_the_oracle_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "_JUMP_SECONDS", 0.0)
    with pytest.raises(Stop, match="times what is allowed"):
        check_calls(PRODUCT, OF_FEWER_BITS, tmp_path, 1, learnt=4)


MANY_OUTPUTS = """
import torch

def inputs(seed, device):
    return torch.randn(64, 64, generator=torch.Generator(device).manual_seed(seed), device=device)

def run(x):
    return [SCALE * (x @ x + i) for i in range(5)]
"""


def test_roundings_are_drawn_once_for_all_outputs_of_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "baseline.py"
    path.write_text(MANY_OUTPUTS.replace("SCALE", "1.0"))
    with opened(path) as (bench, study):
        path.with_name("candidate.py").write_text(MANY_OUTPUTS.replace("SCALE", "1.001"))
        arm = bench.start(CANDIDATE, path.with_name("candidate.py"), study.facts["format"], 0, 1, 1, 60)
        sets, seeds = [bench.draw()], [bench.seed()]
        base, cand = bench.run(bench.arms[BASELINE], sets, seeds), bench.run(arm, sets, seeds)
        # The first wrong one would be the last that is looked at.
        bench.ledger = Ledger(frozenset({"output-matches-oracle"}))
        asked: list[str] = []
        ask = bench.ask
        monkeypatch.setattr(bench, "ask", lambda op, *a, **k: asked.append(op) or ask(op, *a, **k))
        check_call(bench, study, cand.calls[0], base.calls[0])
        # Every one of the five is wrong.
        assert asked.count("locate") == 5
        assert asked.count("condition") == 1


def test_how_far_off_is_never_told_as_once_nor_in_forty_digits() -> None:
    assert [_times(x) for x in (1.0, 1.05, 2.25, 54321.0, 3.2e39)] == [
        "1.001",
        "1.050",
        "2.2",
        "54,321.0",
        "3e+39",
    ]
