"""What is said of a task on whose inputs lazy answers would pass."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.comparison.benches import opened

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
        assert _insensitive(bench, study) == []


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
    assert _insensitive(bench, study) == said
    assert not answers
