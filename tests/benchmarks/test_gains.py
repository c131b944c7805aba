"""The pairs of the benchmark of gains are whole, and what is inside a predicted range is counted so."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from benchmarks.context import Compared
from benchmarks.gains import realised
from benchmarks.gains.predictions import broken_files, repaired, rule_of

from trackside.diagnose.diagnosis import all_rules

CPU, CUDA = broken_files("cpu"), broken_files("cuda")


def _named(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def test_there_are_enough_pairs_for_each_device() -> None:
    assert len(CPU) >= 8
    assert len(CUDA) >= 12


@pytest.mark.parametrize("broken", [*CPU, *CUDA], ids=_named)
def test_a_pair_is_whole_and_about_a_rule_that_exists(broken: Path) -> None:
    twin = repaired(broken)
    assert rule_of(broken) in all_rules()
    assert rule_of(twin) == rule_of(broken)
    assert twin.read_text() != broken.read_text()


@pytest.mark.parametrize("broken", CPU, ids=_named)
def test_both_of_a_pair_compute_the_same(broken: Path) -> None:
    one, other = _module(broken), _module(repaired(broken))
    results = []
    for module in (one, other):
        make = getattr(module, "setup", None) or getattr(one, "setup", None)
        given = one.inputs(1, "cpu")
        results.append(
            module.run(
                *([make(0, "cpu")] if make else []), *(given if isinstance(given, tuple) else (given,))
            )
        )
    torch.testing.assert_close(results[1], results[0], rtol=2e-4, atol=2e-5)


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compared(ratio: float) -> Compared:
    speed = {"ratio": ratio, "low": ratio * 0.99, "high": ratio * 1.01}
    return Compared({"verdict": "faster", "speedup": speed}, 1.0, None, Path())


def test_a_gain_is_the_share_of_the_time_that_the_repair_saves() -> None:
    row = realised({"low": 0.4, "mid": 0.45, "high": 0.55}, _compared(2.0))
    assert row["realised"] == pytest.approx(0.5)
    assert row["inside"] is True
    assert row["realised_low"] < 0.5 < row["realised_high"]
    assert realised({"low": 0.1, "mid": 0.2, "high": 0.3}, _compared(2.0))["inside"] is False


def test_what_was_not_foretold_or_not_measured_is_not_inside() -> None:
    assert realised(None, _compared(2.0))["inside"] is False
    rejected = Compared({"verdict": "rejected", "speedup": None}, 1.0, None, Path())
    assert realised({"low": 0.0, "mid": 0.5, "high": 1.0}, rejected)["inside"] is False
