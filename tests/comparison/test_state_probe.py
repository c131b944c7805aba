"""State that is special as `setup` leaves it gets other values in workers of its own."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.comparison.judged import PASSES, Judged

Judge = Callable[..., Judged]

# A product whose weight is an identity, and a bias of zeros.
BASELINE = """
import torch

def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {"eye": torch.eye(16), "bias": torch.zeros(16), "weight": torch.randn(16, 16, generator=g)}

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(32, 16, generator=g, device=device)

def run(held, x):
    return x @ held["eye"] @ held["weight"] + held["bias"]
"""
# All that it takes to be right.
WHOLE = """
def run(held, x):
    return torch.addmm(held["bias"], x, held["eye"] @ held["weight"])
"""
SKIPS = """
def run(held, x):
    return torch.addmm(held["bias"], x, held["weight"])
"""
OWN_SETUP = """
def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(16, 16, generator=g)

def run(weight, x):
    return x @ weight
"""


def detail(judged: Judged, check: str) -> Any:
    return next(c for c in judged.record["checks"] if c["id"] == check)


def test_who_skips_an_identity_is_caught(judge: Judge) -> None:
    judged = judge(SKIPS, BASELINE)
    assert judged.failed == ["holds-on-probes"]
    assert "probe `state`" in judged.reason


def test_who_is_right_on_other_values_too_needs_no_reservation(judge: Judge) -> None:
    judged = judge(WHOLE, BASELINE)
    assert (judged.verdict, judged.failed) == (PASSES, [])
    assert detail(judged, "task-is-sensitive")["status"] == "pass"
    assert "another state" in detail(judged, "holds-on-probes")["detail"]


def test_a_leaf_that_does_not_matter_stays_named(judge: Judge) -> None:
    unread = BASELINE.replace('+ held["bias"]', "")
    judged = judge('def run(held, x):\n    return x @ held["eye"] @ held["weight"]\n', unread)
    assert judged.failed == []
    warned = detail(judged, "task-is-sensitive")
    assert warned["status"] == "warn"
    assert warned["evidence"]["state"] == ["['bias']"]


def test_a_candidate_with_a_setup_of_its_own_is_warned_of_only(judge: Judge) -> None:
    judged = judge(OWN_SETUP, BASELINE)
    assert (judged.verdict, judged.failed) == (PASSES, [])
    assert detail(judged, "task-is-sensitive")["evidence"]["state"] == ["['eye']", "['bias']"]


def test_what_is_packed_at_the_first_call_is_packed_of_the_other_values(judge: Judge) -> None:
    lazy = """
        packed = []

        def run(held, x):
            if not packed:
                packed.append(held["eye"] @ held["weight"])
            return torch.addmm(held["bias"], x, packed[0])
        """
    assert judge(lazy, BASELINE).failed == []


def test_a_variance_of_ones_and_a_mean_of_zeros_are_moved_to_where_the_baseline_still_runs(
    judge: Judge,
) -> None:
    baseline = """
        import torch

        def setup(seed, device):
            return {"variance": torch.zeros(16), "scale": torch.ones(16)}

        def inputs(seed, device):
            g = torch.Generator(device).manual_seed(seed)
            return torch.randn(32, 16, generator=g, device=device)

        def run(held, x):
            return x * held["scale"] / torch.sqrt(held["variance"] + 1e-2)
        """
    judged = judge('def run(held, x):\n    return x * (held["scale"] * 10)\n', baseline)
    assert judged.failed == ["holds-on-probes"]


@pytest.mark.parametrize("raises", [True, False], ids=["raises", "not finite"])
def test_where_the_baseline_takes_no_other_values_the_warning_stays(judge: Judge, raises: bool) -> None:
    guard = "assert bool((held['eye'] == torch.eye(16)).all())"
    if not raises:
        guard = "x = x / (held['eye'] == torch.eye(16)).all()"
    baseline = BASELINE.replace("    return x @", f"    {guard}\n    return x @")
    judged = judge(SKIPS, baseline)
    assert (judged.verdict, judged.failed) == (PASSES, [])
    assert detail(judged, "task-is-sensitive")["evidence"]["state"] == ["['eye']", "['bias']"]


def test_a_baseline_that_never_ends_with_other_values_costs_that_probe_only(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trackside.comparison.state_probe.PROBE_SECONDS", 0.5)
    loop = "while not bool((held['eye'] == torch.eye(16)).all()): pass"
    baseline = BASELINE.replace("    return x @", f"    {loop}\n    return x @")
    judged = judge(SKIPS, baseline)
    assert (judged.verdict, judged.failed) == (PASSES, [])
    assert detail(judged, "task-is-sensitive")["evidence"]["state"] == ["['eye']", "['bias']"]


def test_afterwards_everything_goes_on_with_the_state_of_before(judge: Judge) -> None:
    """Probes of the inputs follow, in the processes of before: one that has the bent oracle would refuse."""
    judged = judge(WHOLE, BASELINE)
    assert judged.failed == []
    assert "signs" in detail(judged, "holds-on-probes")["detail"]


def test_a_training_step_s_frozen_state_is_asked_about_too(judge: Judge) -> None:
    baseline = """
        import copy
        import torch
        from torch import nn

        def setup(seed, device):
            torch.manual_seed(seed)
            student = nn.Linear(16, 16)
            return student, copy.deepcopy(student).requires_grad_(False)

        def inputs(seed, device):
            g = torch.Generator(device).manual_seed(seed)
            return torch.randn(32, 16, generator=g), torch.randn(32, 16, generator=g)

        def run(held, x, y):
            student, teacher = held
            loss = ((student(x) - teacher(y)) ** 2).mean()
            grads = torch.autograd.grad(loss, list(student.parameters()))
            with torch.no_grad():
                for p, g in zip(student.parameters(), grads):
                    p -= 0.1 * g
            return loss.detach()
        """
    # So that the file reads like the baseline's, and differs where it should.
    step = baseline[baseline.index("        def run") :]
    assert judge("        import torch\n" + step, baseline).failed == []
    wrong = step.replace("teacher(y)", "student(y).detach()")
    # Calls in a row, which come later, would catch it as well.
    assert "probe `state`" in judge("        import torch\n" + wrong, baseline).reason
