"""GPU MODE task folders, copied as they are published: with or without the modules they share."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from trackside.records.errors import TracksideError
from trackside.workload.formats import describe, load

pytestmark = pytest.mark.usefixtures("own_imports")

SHARED_UTILS = (
    "import contextlib\nDeterministicContext = contextlib.nullcontext\nORIGIN = 'shared'\n"
    "def make_match_reference(ref, **kw): return lambda data, output: (True, 'shared')\n"
)


@pytest.fixture
def task(data: Path, tmp_path: Path) -> Path:
    return shutil.copytree(data / "gpumode" / "grayscale_py", tmp_path / "problems" / "pmpp" / "grayscale_py")


def test_a_folder_without_its_utils_loads_and_runs_on_a_cpu(task: Path) -> None:
    baseline = load(task, "baseline")
    assert baseline.format == "gpumode"
    assert baseline.shapes == [{"size": 16}, {"size": 32}]
    assert baseline.probe_shapes == [{"size": 8}, {"size": 6}]
    assert baseline.inputs is not None
    (pair,) = args = baseline.inputs(2**40 + 3, "cpu", None)
    rgb, room = pair
    assert (tuple(rgb.shape), rgb.device.type, room.device.type) == ((16, 16, 3), "cpu", "cpu")
    assert tuple(baseline.inputs(1, "cpu", {"size": 6})[0][0].shape) == (6, 6, 3)
    output = baseline.call(None, args)
    assert output is room
    assert baseline.reference is None
    assert baseline.module.check_implementation(pair, output.clone()) == (True, "")
    good, message = baseline.module.check_implementation(pair, output + 1)
    assert not good
    assert "256 elements differ" in message
    assert not baseline.has_state
    assert baseline.setup(0, "cpu") is None


def test_torch_means_cuda_again_once_the_inputs_are_made(task: Path) -> None:
    generator, synchronize = torch.Generator, torch.cuda.synchronize
    inputs = load(task, "baseline").inputs
    assert inputs is not None
    inputs(1, "cpu", None)
    assert (torch.Generator, torch.cuda.synchronize) == (generator, synchronize)
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("place", ["../utils.py", "utils.py", "../../utils.py"])
def test_a_utils_module_is_found_beside_the_folder_or_above_it(task: Path, place: str) -> None:
    (task / place).write_text(SHARED_UTILS)
    baseline = load(task, "baseline")
    assert baseline.module.check_implementation(None, None) == (True, "shared")
    assert sys.modules["utils"].ORIGIN == "shared"
    assert str((task / place).resolve()) in describe(task, "baseline").files


def test_the_source_that_task_yml_names_is_found_in_another_family(data: Path, tmp_path: Path) -> None:
    task = shutil.copytree(data / "gpumode" / "colsum_py", tmp_path / "problems" / "linalg" / "colsum_py")
    (tmp_path / "problems" / "pmpp_v2").mkdir()
    shared = tmp_path / "problems" / "pmpp_v2" / "utils.py"
    shared.write_text("def verbose_allclose(a, b): return ['from the other family']")
    (tmp_path / "problems" / "utils.py").write_text("def verbose_allclose(a, b): return ['wrong']")
    baseline = load(task, "baseline")
    assert baseline.inputs is not None
    args = baseline.inputs(1, "cpu", None)
    message = baseline.module.check_implementation(args[0], baseline.call(None, args))
    assert "from the other family" in message


def test_nested_data_keeps_its_lists_dicts_numbers_and_none(data: Path) -> None:
    baseline = load(data / "gpumode" / "colsum_py", "baseline")
    assert baseline.inputs is not None
    ((groups, weights, config),) = args = baseline.inputs(9, "cpu", None)
    assert [tuple(g.shape) for g in groups] == [(16, 32), (8, 32)]
    assert weights["mask"] is None
    assert config == {"columns": 32, "case": "dense"}
    ((_, again, _),) = baseline.inputs(9, "cpu", None)
    assert torch.equal(weights["columns"], again["columns"]), "the global generator is seeded too"
    assert baseline.module.check_implementation(args[0], baseline.call(None, args)) == ""
    assert baseline.probe_shapes is not None
    ((groups, _, _),) = baseline.inputs(9, "cpu", baseline.probe_shapes[0])
    assert [len(g) for g in groups] == [3, 5]


def test_a_submission_runs_as_candidate_from_its_folder_and_from_elsewhere(
    task: Path, tmp_path: Path
) -> None:
    baseline = load(task, "baseline")
    elsewhere = shutil.copy(task / "submission.py", tmp_path / "mine.py")
    assert baseline.inputs is not None
    for path in (task, task / "submission.py", Path(elsewhere)):
        candidate = load(path, "candidate", "gpumode")
        assert candidate.inputs is None
        args = baseline.inputs(5, "cpu", None)
        expected = baseline.call(None, args).clone()
        torch.testing.assert_close(candidate.call(None, args), expected)


def test_a_candidate_elsewhere_uses_the_task_module_of_the_baseline(task: Path, tmp_path: Path) -> None:
    (task / "task.py").write_text("input_t = output_t = int\nGREY = 7")
    path = tmp_path / "elsewhere" / "mine.py"
    path.parent.mkdir()
    path.write_text("from task import GREY\ndef custom_kernel(data): return GREY")
    assert load(path, "candidate", "gpumode", baseline_path=task).call(None, (0,)) == 7


def test_a_candidates_own_helper_wins_over_the_tasks(task: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "utils.py").write_text("VALUE = 'own'")
    (folder / "kernel.py").write_text("from utils import VALUE\ndef custom_kernel(data): return VALUE")
    assert load(folder / "kernel.py", "candidate", "gpumode", baseline_path=task).call(None, (0,)) == "own"


def test_a_submission_as_baseline_takes_inputs_and_reference_from_its_task(task: Path) -> None:
    nested = task / "solutions" / "correct"
    nested.mkdir(parents=True)
    shutil.move(task / "submission.py", nested / "first.py")
    facts = describe(nested / "first.py", "baseline")
    assert (facts.entry, facts.has_reference, facts.shape_count) == ("custom_kernel", True, 2)
    baseline = load(nested / "first.py", "baseline")
    assert baseline.inputs is not None
    assert baseline.reference is not None
    args = baseline.inputs(5, "cpu", None)
    torch.testing.assert_close(baseline.call(None, args).clone(), baseline.reference(None, args).clone())


def test_a_submission_as_baseline_outside_a_task_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "first.py"
    path.write_text("def custom_kernel(data): ...")
    with pytest.raises(TracksideError, match="outside any task folder"):
        describe(path, "baseline")


def test_a_name_that_the_stand_in_lacks_is_reported_with_its_line(task: Path) -> None:
    source = (
        (task / "reference.py")
        .read_text()
        .replace("DeterministicContext,", "DeterministicContext, gpu_magic,")
    )
    (task / "reference.py").write_text(source)
    with pytest.raises(TracksideError, match=r"gpu_magic.*reference\.py:3") as caught:
        load(task, "baseline")
    assert caught.value.kind == "workload"


def test_shapes_that_generate_input_does_not_take_are_explained(task: Path) -> None:
    inputs = load(task, "baseline").inputs
    assert inputs is not None
    with pytest.raises(TracksideError, match=r"generate_input\(size: int, seed: int\)"):
        inputs(1, "cpu", {"sizes": 4})


def reference_with(task: Path, body: str, signature: str = "size, seed") -> Path:
    (task / "reference.py").write_text(
        f"import torch\ndef generate_input({signature}):\n    {body}\ndef ref_kernel(data): return data\n"
    )
    return task


def test_a_task_that_cannot_do_without_a_gpu_is_unsupported_here(task: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    inputs = load(reference_with(task, "return torch.cuda.FloatTensor(3)"), "baseline").inputs
    assert inputs is not None
    with pytest.raises(TracksideError) as caught:
        inputs(1, "cpu", None)
    assert caught.value.kind == "unsupported"
    assert caught.value.exit_code == 3


def test_an_error_that_has_nothing_to_do_with_a_gpu_stays_the_tasks_own(task: Path) -> None:
    inputs = load(reference_with(task, "return [][size]"), "baseline").inputs
    assert inputs is not None
    with pytest.raises(TracksideError, match="IndexError") as caught:
        inputs(1, "cpu", None)
    assert caught.value.kind == "workload"


def test_a_task_without_a_seed_parameter_is_seeded_globally(task: Path) -> None:
    inputs = load(reference_with(task, "return torch.rand(size)", "size"), "baseline").inputs
    assert inputs is not None
    assert torch.equal(inputs(3, "cpu", None)[0], inputs(3, "cpu", None)[0])
    assert not torch.equal(inputs(3, "cpu", None)[0], inputs(4, "cpu", None)[0])


def test_the_stand_in_contexts_leave_no_flag_behind(task: Path) -> None:
    before = (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic, dict(os.environ))
    baseline = load(task, "baseline")
    assert baseline.inputs is not None
    baseline.call(None, baseline.inputs(1, "cpu", None))
    assert before == (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic, dict(os.environ))
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.gpu
def test_on_a_gpu_inputs_lie_on_the_device_that_was_asked_for(task: Path) -> None:
    baseline = load(task, "baseline")
    assert baseline.inputs is not None
    args = baseline.inputs(1, "cuda:0", None)
    assert str(args[0][0].device) == "cuda:0"
    assert baseline.module.check_implementation(args[0], baseline.call(None, args).clone())[0]


@pytest.mark.gpu
def test_on_a_gpu_a_task_that_stays_on_the_host_is_refused(task: Path) -> None:
    inputs = load(reference_with(task, "return torch.rand(size)"), "baseline").inputs
    assert inputs is not None
    with pytest.raises(TracksideError, match="inputs on cpu"):
        inputs(1, "cuda:0", None)
