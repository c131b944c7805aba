"""What is said of a task on whose inputs lazy answers would pass."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.comparison.benches import opened
from tests.comparison.judged import Judged

from trackside.comparison.probing import _insensitive
from trackside.comparison.study import Study

FILTERED = """
import torch

def inputs(seed, device):
    return (torch.randn(32, 100, generator=torch.Generator(device).manual_seed(seed), device=device),)

def run(x):
    return x.masked_fill(x < x.median(), FILL)
"""


@pytest.mark.parametrize("fill", ['float("-inf")', 'float("nan")'])
def test_no_constant_passes_for_numbers_among_infinities(tmp_path: Path, fill: str) -> None:
    path = tmp_path / "baseline.py"
    path.write_text(FILTERED.replace("FILL", fill))
    with opened(path) as (bench, study):
        assert _insensitive(bench, study).whole == []


@pytest.mark.parametrize(
    ("alike", "said"), [([True, False], []), ([True, True, False], []), ([True] * 3, ["stale"])]
)
def test_a_stale_answer_is_said_to_pass_when_it_does_on_three_pairs_of_draws(
    alike: list[bool], said: list[str]
) -> None:
    """Accuracies over a few hundred rows are often the same number twice."""
    offs = [0.0 if one else 0.1 for one in alike]
    answers = [{"nonfinite": 0, "bins": {"57": [1.0, off, off, 0.5]}} for off in offs]

    def ask(op: str, **message: Any) -> dict[str, Any]:
        return {"leaves": [{"path": "out", "lazy": {"stale": answers.pop(0)}}]} if op == "sensitivity" else {}

    bench: Any = SimpleNamespace(ask=ask, draw=lambda: 1, seed=lambda: 1)
    study = Study({}, bins={"out": {"57": [12.0, 1e-8, 1e-8, 0.5]}})
    assert _insensitive(bench, study).whole == said
    assert not answers


FLAGGED = """
import torch

def inputs(seed, device):
    return (torch.randn(64, 32, generator=torch.Generator(device).manual_seed(seed), device=device),)

def run(x):
    return torch.relu(x), PART
"""


@pytest.mark.parametrize(
    "part",
    [
        # Never true of 64 drawn rows, and no probe makes two of them the same.
        "(x[:, None] == x).all(-1).sum(-1) > 1",
        "torch.bincount((x.norm(dim=-1) > 0).long(), minlength=3)",
        "torch.relu(-x.abs() - 1)",
    ],
    ids=["mask", "counts", "floats"],
)
def test_an_output_that_is_the_same_in_every_draw_and_probe_is_named(
    judge: Callable[..., Judged], part: str
) -> None:
    baseline = FLAGGED.replace("PART", part)
    result = judge(f"def run(x): return torch.relu(x), {part}", baseline)
    (check,) = [c for c in result.record["checks"] if c["id"] == "task-is-sensitive"]
    assert check["status"] == "warn"
    assert check["detail"].startswith("out[1]: in every draw and probe")


@pytest.mark.parametrize(
    "part",
    ["x.sum(-1) > 15", "(x > 2).sum(-1)", "torch.relu(x - 50)"],
    ids=["mask", "counts", "floats"],
)
def test_an_output_that_a_draw_or_a_probe_changes_is_not(judge: Callable[..., Judged], part: str) -> None:
    """No drawn number is 50, and no drawn row adds up to 15 but now and then; large ones are."""
    result = judge(f"def run(x): return torch.relu(x), {part}", FLAGGED.replace("PART", part))
    (check,) = [c for c in result.record["checks"] if c["id"] == "task-is-sensitive"]
    assert check["status"] == "pass", check
