"""What the judge learns of a file without running it, and how it says what is wrong."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trackside.records.errors import TracksideError
from trackside.workload.formats import describe, detect

INPUTS = "def inputs(seed, device): ...\n"
RUN = "def run(a): ...\n"


def refused(path: Path, role: str = "baseline", baseline_format: str | None = None) -> TracksideError:
    with pytest.raises(TracksideError) as caught:
        describe(path, role, baseline_format)
    assert caught.value.remedy
    return caught.value


def test_describing_runs_no_user_code_and_imports_no_framework(write, data: Path) -> None:
    poison = write("raise SystemExit('ran')\n" + INPUTS + RUN)
    paths = [
        poison,
        *(data / p for p in ("gpumode/grayscale_py", "kernelbench/23_Linear_LayerNorm_Scale.py")),
    ]
    program = (
        "import sys\nfrom pathlib import Path\nfrom trackside.workload.formats import describe\n"
        f"for p in {[str(p) for p in paths]}: print(describe(Path(p), 'baseline').format)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["native", "gpumode", "kernelbench", "False"]


@pytest.mark.parametrize(
    ("source", "format_"),
    [
        (INPUTS + RUN, "native"),
        (RUN, "native"),
        ("run = lambda a: a", "native"),
        ("from impl import run", "native"),
        ("try:\n    from fast import run\nexcept ImportError:\n    def run(a): ...", "native"),
        ("class ModelNew: ...", "kernelbench"),
        ("class Model: ...\ndef get_inputs(): ...", "kernelbench"),
        ("class Model: ...", "kernelbench"),
        ("def custom_kernel(data): ...", "gpumode"),
        ("def custom_kernel(data): ...\ndef run(a): ...", "gpumode"),
        ("class Model: ...\n" + INPUTS + RUN, "native"),
    ],
)
def test_the_format_shows_in_the_names_a_file_defines(write, source: str, format_: str) -> None:
    assert detect(write(source)) == format_


@pytest.mark.parametrize("name", ["", "task.yml", "reference.py"])
def test_a_task_folder_is_found_by_its_name_or_that_of_its_files(data: Path, name: str) -> None:
    path = data / "gpumode" / "grayscale_py" / name
    assert detect(path) == "gpumode"
    assert describe(path, "baseline").entry == "ref_kernel"


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    error = refused(tmp_path / "absent.py")
    assert error.kind == "not-found"
    assert "absent.py" in error.message


def test_a_folder_without_task_yml_is_named_with_what_it_holds(write, tmp_path: Path) -> None:
    write(RUN, "folder/kernel.py")
    error = refused(tmp_path / "folder")
    assert error.kind == "workload"
    assert "task.yml" in error.message
    assert "kernel.py" in error.message


def test_a_syntax_error_is_given_with_its_line(write) -> None:
    error = refused(write(INPUTS + "def run(a:\n    return a\n"))
    assert error.kind == "workload"
    assert "workload.py:2" in error.message


def test_a_file_that_is_not_python_is_refused(write) -> None:
    assert "not a .py file" in refused(write("{}", "notebook.ipynb")).message
    assert refused(write("x = '\0'")).kind == "workload"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert "no ordinary file" in refused(tmp_path / "pipe.py").message


def test_a_missing_run_is_explained_by_the_function_that_was_meant(write) -> None:
    error = refused(write(INPUTS + "def matmul(a): ...\n"))
    assert "without `run`" in error.message
    assert "rename `matmul` to `run`" in error.remedy


def test_a_missing_inputs_is_asked_for_of_a_baseline_only(write) -> None:
    path = write(RUN)
    assert "`inputs(seed, device)`" in refused(path).message
    assert describe(path, "candidate", "native").entry == "run"


def test_a_file_with_no_known_name_lists_what_it_has(write) -> None:
    error = refused(write("def forward(x): ...\ndef backward(x): ..."))
    assert "`forward`, `backward`" in error.message
    assert "`run`" in error.message


def test_what_stands_under_the_main_guard_does_not_exist(write) -> None:
    assert (
        "without `run`" in refused(write(INPUTS + "if __name__ == '__main__':\n    def run(a): ...")).message
    )


@pytest.mark.parametrize(
    ("parameters", "shapes", "fits"),
    [
        ("seed, device", False, True),
        ("seed, device, n=3", False, True),
        ("*args", False, True),
        ("seed, device, *, n=3", False, True),
        ("seed", False, False),
        ("seed, device, shape", False, False),
        ("seed, device, *, n", False, False),
        ("seed, device, shape", True, True),
        ("seed, device", True, False),
    ],
)
def test_inputs_must_take_a_seed_a_device_and_a_shape_if_shapes_are_declared(
    write, parameters: str, shapes: bool, fits: bool
) -> None:
    path = write(f"def inputs({parameters}): ...\n{RUN}" + ("shapes = [1, 2]\n" if shapes else ""))
    if fits:
        facts = describe(path, "baseline")
        assert (facts.declares_shapes, facts.shape_count) == (shapes, 2 if shapes else None)
    else:
        error = refused(path)
        assert f"inputs({parameters})" in error.message
        assert "workload.py:1" in error.message
        assert ("since `shapes` is declared" in error.message) == shapes


def test_a_decorator_or_a_second_definition_leaves_the_parameters_open(write) -> None:
    for open_ended in (
        "import x\n@x.filled\ndef inputs(): ...\n",
        "if X:\n    def inputs(): ...\nelse:\n    def inputs(a): ...\n",
    ):
        assert describe(write(open_ended + RUN), "baseline").format == "native"
    # Plain to see, the same parameters are refused.
    assert "inputs()" in refused(write("def inputs(): ...\n" + RUN)).message


@pytest.mark.parametrize(
    "declared",
    [
        "tolerance = True",
        "tolerance = -1e-3",
        "tolerance = 1.0",
        "tolerance = '1e-3'",
        "tolerance = {}",
        "tolerance = {'rms': 1e-3, 'mean': 1}",
        "tolerance = {'rms': None}",
        "domain = 'negative'",
        "domain = {'a': 'unit'}",
        "domain = {0: 'units'}",
        "domain = {-1: 'unit'}",
        "outputs = 'forever'",
        "reference = 3",
        "shapes = []",
    ],
)
def test_a_declaration_of_the_wrong_kind_is_refused_before_anything_runs(write, declared: str) -> None:
    name = declared.split()[0]
    source = (INPUTS if name != "shapes" else "def inputs(seed, device, shape): ...\n") + RUN + declared
    error = refused(write(source))
    assert error.kind == "workload"
    assert f"`{name} = " in error.message
    # What a candidate declares does not count, so it cannot be wrong either.
    describe(write(source), "candidate", "native")


@pytest.mark.parametrize(
    ("baseline_format", "source", "needed"),
    [
        ("kernelbench", INPUTS + RUN, "`ModelNew`"),
        ("gpumode", INPUTS + RUN, "`custom_kernel`"),
        ("native", "class ModelNew: ...", "`run`"),
        ("native", "def custom_kernel(data): ...", "`run`"),
    ],
)
def test_a_candidate_in_another_format_is_refused(
    write, baseline_format: str, source: str, needed: str
) -> None:
    error = refused(write(source), "candidate", baseline_format)
    assert error.kind == "workload"
    assert f"needed {needed}" in error.message


def test_a_native_candidate_with_custom_kernel_serves_a_task_folder(write) -> None:
    path = write("def custom_kernel(data): ...\n" + INPUTS + RUN)
    assert describe(path, "candidate", "gpumode").entry == "custom_kernel"
    assert describe(path, "candidate", "native").entry == "run"


def test_a_star_import_defers_the_question_to_loading(write) -> None:
    assert describe(write("from impl import *"), "baseline").entry == "run"


def test_digests_cover_helpers_beside_the_file(data: Path, write, tmp_path: Path) -> None:
    facts = describe(data / "native" / "scaled_softmax.py", "baseline")
    assert [Path(p).name for p in facts.files] == ["scaled_softmax.py", "scaling.py"]
    assert facts.sha256 == facts.files[str((data / "native" / "scaled_softmax.py").resolve())]
    assert (facts.has_setup, facts.has_reference, facts.has_work) == (True, True, True)
    assert (facts.shape_count, facts.outputs) == (2, "until_next_call")
    write("import b", "a.py")
    write("import a", "b.py")
    assert len(describe(write("import a\n" + INPUTS + RUN), "baseline").files) == 3


def test_a_folders_digest_follows_its_contents_and_not_its_place(data: Path, tmp_path: Path) -> None:
    task = data / "gpumode" / "colsum_py"
    copy = shutil.copytree(task, tmp_path / "copy")
    before = describe(task, "baseline").sha256
    assert describe(copy, "baseline").sha256 == before
    (copy / "reference.py").write_text((copy / "reference.py").read_text() + "\n")
    assert describe(copy, "baseline").sha256 != before


def test_facts_are_plain_data(data: Path) -> None:
    shown = json.loads(json.dumps(describe(data / "gpumode" / "grayscale_py", "baseline").as_json()))
    assert (shown["format"], shown["shape_count"], shown["names_cuda"]) == ("gpumode", 2, True)


@pytest.mark.parametrize(
    ("task", "kind", "said"),
    [
        ("a: [", "workload", "task.yml:"),
        ("- 1", "workload", "no keys"),
        ("lang: cu", "unsupported", "'cu'"),
        ("tests: [{world_size: 8, seed: 1}]", "unsupported", "8 ranks"),
        ("multi_gpu: true", "unsupported", "several GPUs"),
        ("tests: 3", "workload", "`tests`"),
        ("tests: [{n: 1}]", "workload", "without reference.py"),
    ],
)
def test_a_task_that_cannot_be_used_says_why(write, tmp_path: Path, task: str, kind: str, said: str) -> None:
    write(task, "task/task.yml")
    error = refused(tmp_path / "task")
    assert error.kind == kind
    assert said in error.message


def test_a_task_with_an_evaluator_of_its_own_is_refused(write, tmp_path: Path) -> None:
    write("tests: [{n: 1}]", "task/task.yml")
    write("def cross_entropy(a, b): ...", "task/reference.py")
    assert "`generate_input`" in refused(tmp_path / "task").message
