"""What a workload may be, and what a certificate rests on, with real processes."""

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.comparison.judged import PASSES, Judged
from tests.comparison.program import BASELINE, HONEST

from trackside.comparison import trial
from trackside.comparison.checks import Ledger
from trackside.comparison.trial import Options, run_trial
from trackside.comparison.trial_record import Outcome, grade


def test_missing_isolation_is_named_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(BASELINE)
    (tmp_path / "new.py").write_text(HONEST)
    options = Options(
        tmp_path / "base.py",
        tmp_path / "new.py",
        checks_only=True,
        unprotected=("namespaces", "landlock"),
        store=tmp_path / "store",
    )
    record = run_trial(options)
    check = next(c for c in record.checks if c.id == "isolation")
    assert check.status == "warn"
    assert "namespace" in check.detail
    assert "Landlock" in check.detail
    assert not record.certified
    assert record.options["unprotected"] == ["namespaces", "landlock"]


LOWERING = (
    "task-is-sensitive",
    "holds-on-probes",
    "oracle-available",
    "output-structure",
    "isolation",
    "machine-quiet",
    "clocks-agree",
)


@pytest.mark.parametrize("warned", [*LOWERING, "state-matches"])
def test_a_warning_about_what_a_certificate_rests_on_lowers_it(tmp_path: Path, warned: str) -> None:
    options, ledger = Options(tmp_path / "base.py", tmp_path / "new.py"), Ledger()
    outcomes = [Outcome(None, "faster", [], ledger)]
    for check in LOWERING:
        ledger.passed(check, "as it should be")
    assert grade(options, outcomes, "faster") == "full"
    ledger.warned(warned, "not quite")
    assert grade(options, outcomes, "faster") == "reduced"


def test_two_pairs_are_not_enough_for_a_certificate(tmp_path: Path) -> None:
    ledger = Ledger()
    for check in LOWERING:
        ledger.passed(check, "as it should be")
    outcomes = [Outcome(None, "faster", [], ledger)]
    grades = [
        grade(Options(tmp_path / "a", tmp_path / "b", pairs=pairs), outcomes, "faster") for pairs in (2, 3)
    ]
    assert grades == ["none", "full"]


@pytest.mark.parametrize("where", ["baseline", "candidate", "both"])
def test_a_default_device_set_on_import_is_no_hook(judge: Callable[..., Judged], where: str) -> None:
    line = "import torch\ntorch.set_default_device('cpu')\n"
    baseline = line + textwrap.dedent(BASELINE) if where != "candidate" else BASELINE
    result = judge(line if where != "baseline" else "", baseline=baseline)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


SHAPES = """
import torch
from typing import NamedTuple

class Size(NamedTuple):
    rows: int
    columns: int

shapes = [Size(4, 8), (2, 16), {8: 8}, torch.float64]

def inputs(seed, device, shape):
    g = torch.Generator(device).manual_seed(seed)
    if shape is torch.float64:
        return torch.randn(8, 8, generator=g, device=device)
    size = (shape.rows, shape.columns) if isinstance(shape, Size) else shape
    size = (8, shape[8]) if isinstance(shape, dict) else size + ()
    return torch.randn(*size, generator=g, device=device)

def run(x):
    return x * 2
"""


def test_a_shape_is_any_value_and_reaches_inputs_as_it_is(judge: Callable[..., Judged]) -> None:
    result = judge("def run(x): return x + x", baseline=SHAPES)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)
    shown = [entry["shape"] for entry in result.record["shapes"]]
    assert shown == [[4, 8], [2, 16], {"8": 8}, "torch.float64"]


WITH_STATE = """
import torch

def setup(seed, device):
    return torch.ones(64, device=device)

def inputs(seed, device):
    return torch.randn(64, generator=torch.Generator(device).manual_seed(seed), device=device)

def run(scale, xDEFAULT):
    return x * scale
"""


@pytest.mark.parametrize(
    ("default", "candidate"),
    [
        ("", "def run(scale, x, block=256): return scale * x"),
        (", eps=1e-5", "def run(scale, x): return scale * x"),
        ("", "def run(*args): return args[0] * args[1]"),
        ("", "def run(x): return x.clone()"),
        ("", "def run(x, block=256): return x.clone()"),
    ],
    ids=["a default more", "a default less", "any number", "inputs alone", "inputs and a default"],
)
def test_a_candidate_without_set_up_has_the_baseline_s_where_its_run_takes_it(
    judge: Callable[..., Judged], default: str, candidate: str
) -> None:
    result = judge(candidate, baseline=WITH_STATE.replace("DEFAULT", default))
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


GRADIENT_OF_AN_INPUT = """
import torch

def inputs(seed, device):
    return torch.randn(8, 8, generator=torch.Generator(device).manual_seed(seed), device=device)

def run(x):
    x.requires_grad_()
    x.grad = None if ANEW else x.grad
    x.sin().sum().backward()
    return x.grad.clone()
"""


@pytest.mark.parametrize("anew", [True, False])
def test_inputs_that_a_call_asks_a_gradient_of_are_plain_again_in_the_next(
    judge: Callable[..., Judged], anew: bool
) -> None:
    baseline = GRADIENT_OF_AN_INPUT.replace("ANEW", str(anew))
    candidate = "def run(x):" + baseline.split("def run(x):")[1]
    result = judge(candidate, baseline=baseline)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


def test_a_candidate_may_bend_its_inputs_as_the_baseline_does(judge: Callable[..., Judged]) -> None:
    baseline = GRADIENT_OF_AN_INPUT.split("def run")[0] + "def run(x):\n    return x.t_() * 2\n"
    result = judge("def run(x): return 2 * x.t_()", baseline=baseline)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)
    result = judge("def run(x): return 2 * x.t_()", baseline=baseline.replace("x.t_()", "x.t()"))
    assert result.failed == ["inputs-unchanged"]


ORDERED = """
import torch
from collections import OrderedDict

def setup(seed, device):
    return {"cache": OrderedDict(first=torch.zeros(4)), "n": torch.zeros(())}

def inputs(seed, device):
    return torch.randn(4, generator=torch.Generator(device).manual_seed(seed), device=device)

def run(state, x):
    state["n"] += 1
    state["cache"][len(state["cache"])] = x * 2
    state["cache"].move_to_end("first")
    return torch.stack([v for v in state["cache"].values()]) + state["n"]
"""


def test_an_ordered_dict_of_the_state_is_put_back_in_order(judge: Callable[..., Judged]) -> None:
    candidate = "def run(state, x):" + ORDERED.split("def run(state, x):")[1]
    result = judge("from collections import OrderedDict\n" + candidate, baseline=ORDERED)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


def test_inputs_of_a_class_of_their_own_are_refused_by_name(judge: Callable[..., Judged]) -> None:
    baseline = """
        import torch
        from typing import NamedTuple
        class Batch(NamedTuple):
            x: torch.Tensor
        def inputs(seed, device):
            return {"batch": Batch(torch.randn(4, generator=torch.Generator().manual_seed(seed)))}
        def run(given):
            return given["batch"].x * 2
    """
    error = judge("", baseline=baseline).error
    assert error is not None
    assert "inputs hold a Batch; needed: tensors, numbers, strings, None, nested in" in error.message


def test_a_file_whose_name_is_not_text_is_compared_like_any_other(
    judge: Callable[..., Judged], tmp_path: Path
) -> None:
    judge("")
    name = os.fsdecode(b"new\xff.py")
    (tmp_path / "files" / name).write_bytes((tmp_path / "files" / "new.py").read_bytes())
    options = Options(
        tmp_path / "files" / "base.py", tmp_path / "files" / name, checks_only=True, store=tmp_path / "store"
    )
    assert run_trial(options).verdict == PASSES


def test_a_file_that_changes_meanwhile_is_not_what_was_compared(
    judge: Callable[..., Judged], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    probe = trial.probe

    def edited(*arguments: Any) -> list[str]:
        with open(tmp_path / "files" / "new.py", "a") as file:
            file.write("\n# a later thought\n")
        return probe(*arguments)

    monkeypatch.setattr(trial, "probe", edited)
    judged = judge("")
    assert (judged.verdict, judged.failed) == ("not-comparable", ["environment-same"])
    assert "new.py, of the candidate, changed during the comparison" in judged.reason
