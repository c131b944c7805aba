"""What can be proved of the GPU corpus without a GPU: its files, tasks and plain-torch candidates."""

from pathlib import Path

import pytest
from tests.redteam.corpus import CHECKS
from tests.redteam.gpu import naive
from tests.redteam.gpu.corpus import CASES, FALSE, HONEST

torch = pytest.importorskip("torch")

_FOLDER = Path(__file__).resolve().parent
_NATIVE = sorted({case.baseline_path for case in CASES if "kernelbench" not in case.baseline})
# Too large for two CPU cores, or compiled for minutes: left to the GPU.
_GPU_ONLY = ("cuda", "triton", "torch.compile", "ModelNew")


def _needs_gpu(case):
    # "cuda" alone is in every setup that chooses sizes by device.
    text = case.candidate_path.read_text().replace('startswith("cuda")', "")
    return any(word in text for word in _GPU_ONLY)


def _outputs(task, workload, seed):
    """What one call returns, and the state it leaves where that is a dict."""
    state = workload.setup(7)
    found = naive._leaves(workload.call(state, task.inputs(seed)))
    return found, state if isinstance(state, dict) else {}


def _agree(case, rtol, atol):
    task = naive._load(case.baseline_path, "baseline", "cpu")
    candidate = naive._load(case.candidate_path, "candidate", "cpu", task.module)
    want, state = _outputs(task, task, 3)
    got, other = _outputs(task, candidate, 3)
    pairs = list(zip(want, got, strict=True))
    if state.keys() == other.keys():  # a candidate may pack its weights otherwise
        pairs += zip(naive._leaves(state), naive._leaves(other), strict=True)
    tensors = [pair for pair in pairs if all(isinstance(one, torch.Tensor) for one in pair)]
    return all(torch.allclose(x.float(), y.float(), rtol=rtol, atol=atol) for x, y in tensors)


def test_every_case_names_files_and_checks_that_exist():
    for case in CASES:
        assert case.baseline_path.is_file(), case.name
        assert case.candidate_path.is_file(), case.name
        assert set(case.caught_by) <= CHECKS, case.name
    assert len({case.name for case in CASES}) == len(CASES)


def test_every_candidate_file_is_in_the_corpus():
    files = {path for folder in ("false", "honest") for path in (_FOLDER / folder).glob("*.py")}
    assert files == {case.candidate_path for case in CASES}


def test_no_false_case_may_be_called_faster():
    assert not [case.name for case in FALSE if "faster" in case.expect]


def test_no_honest_case_may_be_rejected():
    assert not [case.name for case in HONEST if case.expect & {"rejected", "not-comparable"}]


@pytest.mark.parametrize("path", _NATIVE, ids=lambda path: path.stem)
def test_a_task_repeats_for_one_seed_and_differs_for_another(path):
    task = naive._load(path, "baseline", "cpu")
    first, again, other = (_outputs(task, task, seed)[0] for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("case", [c for c in HONEST if not _needs_gpu(c)], ids=lambda case: case.name)
def test_an_honest_candidate_agrees_with_its_baseline(case):
    assert _agree(case, 1e-4, 1e-5)


_WRONG_ON_ONE_CALL = (
    "fp16_for_fp32",
    "bf16_for_fp32",
    "layernorm_skips_affine",
    "softmax_zeros",
    "mean_of_sample",
    "attention_half_keys",
    "train_gradient_skipped",
    "train_bf16",
    "train_no_update",
)


@pytest.mark.parametrize("name", _WRONG_ON_ONE_CALL)
def test_wrong_arithmetic_is_wrong(name):
    (case,) = [case for case in FALSE if case.name == f"gpu_{name}"]
    assert not _agree(case, 1e-5, 1e-6)
