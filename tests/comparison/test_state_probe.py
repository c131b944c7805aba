"""State that is special as `setup` leaves it gets other values in workers of its own."""

import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from tests.comparison.judged import PASSES, Judged

from trackside.comparison.bench import Bench

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


# What each row is divided by is what it is multiplied with, as constructed.
RELATED = """
import torch

def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    direction = torch.randn(16, 16, generator=g)
    return {"direction": direction, "length": direction.norm(dim=1, keepdim=True)}

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(32, 16, generator=g, device=device)

def run(held, x):
    v = held["direction"]
    return x @ (held["length"] * v / v.norm(dim=1, keepdim=True)).T
"""
NORMED = """
def run(held, x):
    v = held["direction"]
    return (x @ v.T) * (held["length"] / v.norm(dim=1, keepdim=True)).T
"""
COUNTS_ON_IT = """
def run(held, x):
    return x @ held["direction"].T
"""
SEEN = "right for the state as `setup` makes it only: "
THERE = "with other values in ['direction'], ['length']"


def warned_of(judged: Judged) -> str:
    """The warning about a state of other values; the verdict must not hang on it."""
    assert (judged.verdict, judged.failed, judged.error) == (PASSES, [], None)
    check = detail(judged, "task-is-sensitive")
    assert check["status"] == "warn"
    assert SEEN in check["detail"]
    return str(check["detail"])


def not_warned_of(judged: Judged) -> None:
    assert (judged.verdict, judged.failed, judged.error) == (PASSES, [], None)
    assert SEEN not in detail(judged, "task-is-sensitive")["detail"]


def test_who_counts_on_what_tensors_have_in_common_is_warned_of_and_not_rejected(judge: Judge) -> None:
    told = warned_of(judge(COUNTS_ON_IT, RELATED))
    assert f"{THERE}, out[" in told
    assert ": expected " in told
    assert told.endswith("code may count on what these values have in common")


def test_who_is_right_with_other_values_throughout_has_no_reservation(judge: Judge) -> None:
    judged = judge(NORMED, RELATED)
    not_warned_of(judged)
    assert detail(judged, "task-is-sensitive")["status"] == "pass"
    right_on = detail(judged, "holds-on-probes")["detail"]
    assert "other values throughout the state" in right_on
    # With the state of before: a baseline that is held to a bent oracle fails on every probe.
    assert "signs" in right_on


def test_who_is_far_off_with_other_values_has_no_roundings_drawn(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that goes on all the same has no minute for explanations that cannot be."""
    asked, ask = [], Bench.ask

    def listen(bench: Bench, op: str, *given: Any, **message: Any) -> Any:
        asked.append((bench.situation, op))
        return ask(bench, op, *given, **message)

    monkeypatch.setattr(Bench, "ask", listen)
    warned_of(judge(COUNTS_ON_IT, RELATED))
    there = [op for situation, op in asked if situation == f" {THERE}"]
    assert "locate" in there
    assert "condition" not in there


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("raise ValueError('not as made')", "ValueError"),
        ("os._exit(3)", "the candidate"),
        ("subprocess.Popen(['sleep', '600']); time.sleep(600)", "within 2.0 s"),
        ("return x @ v.T[:, :8]", "out is float32[32, 8]"),
    ],
    ids=["raises", "dies", "hangs", "other shape"],
)
def test_who_fails_with_other_values_is_wrong_there_and_the_trial_goes_on(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, does: str, told: str
) -> None:
    monkeypatch.setattr("trackside.comparison.state_probe._FIRST_CALL_SECONDS", 2.0)
    candidate = f"""
        import os, subprocess, time

        def run(held, x):
            v = held["direction"]
            if not torch.allclose(held["length"], v.norm(dim=1, keepdim=True)):
                {does}
            return x @ v.T
        """
    judged = judge("import torch\n" + textwrap.dedent(candidate), RELATED)
    assert told in warned_of(judged)
    assert THERE in warned_of(judged)
    # In the processes of before, which still have the state that `setup` made.
    assert "signs" in detail(judged, "holds-on-probes")["detail"]


def test_what_is_behind_a_last_layer_of_zeros_is_looked_at_with_other_values_in_that_layer_too(
    judge: Judge,
) -> None:
    baseline = RELATED.replace('"length":', '"last": torch.zeros(16, 16), "length":')
    baseline = baseline.replace("    return x @ (", '    return x + held["last"].mv(x[0]) + x @ (')
    baseline = baseline.replace(").T\n", ').T @ held["last"]\n')
    wrong = """
        def run(held, x):
            return x + held["last"].mv(x[0]) + x @ held["direction"].T @ held["last"]
        """
    judged = judge(wrong, baseline)
    warned_of(judged)
    assert "another state" in detail(judged, "holds-on-probes")["detail"]


def test_who_drops_what_is_zero_is_rejected_before_any_warning(judge: Judge) -> None:
    baseline = RELATED.replace('"length":', '"bias": torch.zeros(16), "length":')
    judged = judge(COUNTS_ON_IT, baseline.replace(").T\n", ').T + held["bias"]\n'))
    assert judged.failed == ["holds-on-probes"]
    assert "probe `state`" in judged.reason


@pytest.mark.parametrize("fails", ["assert one", "x = x / one", "while not one: pass"])
def test_where_the_baseline_takes_no_other_values_throughout_nothing_is_said(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr("trackside.comparison.state_probe.PROBE_SECONDS", 0.5)
    known = 'one = torch.allclose(held["length"], held["direction"].norm(dim=1, keepdim=True))'
    baseline = RELATED.replace("    v =", f"    {known}\n    {fails}\n    v =")
    not_warned_of(judge(COUNTS_ON_IT, baseline))


def test_a_candidate_that_fails_only_where_the_baseline_loses_its_way_is_not_warned_of(judge: Judge) -> None:
    known = 'one = torch.allclose(held["length"], held["direction"].norm(dim=1, keepdim=True))'
    inexact = "x = x if one else x + 1e6 - 1e6"
    baseline = RELATED.replace("    v =", f"    {known}\n    {inexact}\n    v =")
    refuses = COUNTS_ON_IT.replace("    return", f"    {known}\n    assert one\n    return")
    not_warned_of(judge("import torch\n" + refuses, baseline))


def test_variances_that_are_drawn_stay_above_zero_where_they_must(judge: Judge) -> None:
    baseline = """
        import torch

        def setup(seed, device):
            g = torch.Generator(device).manual_seed(seed)
            return torch.rand(16, generator=g) + 0.1

        def inputs(seed, device):
            g = torch.Generator(device).manual_seed(seed)
            return torch.randn(32, 16, generator=g, device=device)

        def run(variance, x):
            return x / variance.sqrt()
        """
    judged = judge("def run(variance, x):\n    return x * variance.rsqrt()\n", baseline)
    not_warned_of(judged)
    assert "other values throughout the state" in detail(judged, "holds-on-probes")["detail"]


def test_a_candidate_with_a_setup_of_its_own_is_not_asked_about_other_values(judge: Judge) -> None:
    start = RELATED.index("def setup")
    own = "import torch\n" + RELATED[start : RELATED.index("def inputs")] + COUNTS_ON_IT
    not_warned_of(judge(own, RELATED))


def test_two_workers_that_take_long_to_start_are_not_started_for_a_warning(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trackside.comparison.state_probe._MOST_BUILDING", 0.0)
    not_warned_of(judge(COUNTS_ON_IT, RELATED))
