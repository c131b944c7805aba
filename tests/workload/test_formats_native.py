"""Native workloads: what `load` takes from a baseline and from a candidate."""

import os
import py_compile
import sys
from pathlib import Path

import pytest
import torch

from trackside.records.errors import TracksideError
from trackside.workload.formats import load

pytestmark = pytest.mark.usefixtures("own_imports")


def test_a_baseline_brings_everything_it_declares(data: Path) -> None:
    baseline = load(data / "native" / "scaled_softmax.py", "baseline")
    assert baseline.tolerance == {"rms": 1e-5, "max": 1e-4}
    assert baseline.domain == {0: "any", 1: "positive"}
    assert baseline.outputs == "until_next_call"
    assert baseline.shapes == [(4, 16), (3, 40)]
    assert baseline.work is not None
    assert baseline.inputs is not None
    args = baseline.inputs(7, "cpu", None)
    assert [tuple(a.shape) for a in args] == [(4, 16), (16,)]
    assert tuple(baseline.inputs(7, "cpu", (3, 40))[0].shape) == (3, 40)
    assert torch.equal(args[0], baseline.inputs(7, "cpu", None)[0])
    assert not torch.equal(args[0], baseline.inputs(8, "cpu", None)[0])
    state = baseline.setup(1, "cpu")
    assert baseline.reference is not None
    expected = baseline.reference(state, args)
    assert expected.dtype == torch.float64
    torch.testing.assert_close(baseline.call(state, args).double(), expected, rtol=1e-5, atol=1e-6)


def test_of_a_candidate_only_run_is_taken(data: Path) -> None:
    candidate = load(data / "native" / "scaled_softmax_fast.py", "candidate", baseline_format="native")
    assert (candidate.inputs, candidate.reference, candidate.tolerance) == (None, None, None)
    assert not candidate.has_state
    assert candidate.setup(1, "cpu") is None


def test_a_candidate_without_setup_uses_the_baselines(data: Path) -> None:
    base = data / "native" / "scaled_softmax.py"
    baseline = load(base, "baseline")
    candidate = load(base.with_name("scaled_softmax_fast.py"), "candidate", "native", baseline_path=base)
    assert candidate.has_state
    assert (candidate.borrows_setup, baseline.borrows_setup) == (True, False)
    assert baseline.inputs is not None
    args = baseline.inputs(3, "cpu", None)
    torch.testing.assert_close(
        candidate.call(candidate.setup(1, "cpu"), args), baseline.call(baseline.setup(1, "cpu"), args)
    )


def test_the_baselines_setup_runs_once_loaded_and_leaves_the_candidates_helpers_first(write) -> None:
    base = write(
        "import time\nLOADED = time.monotonic_ns()\ndef inputs(seed, device): ...\n"
        "def setup(seed, device): return LOADED\ndef run(state, a): ...",
        "one/base.py",
    )
    write("NAME = 'of the baseline'", "one/helper.py")
    write("NAME = 'of the candidate'", "two/helper.py")
    path = write("def run(state, a):\n    import helper\n    return helper.NAME", "two/new.py")
    candidate = load(path, "candidate", "native", baseline_path=base)
    state = candidate.setup(1, "cpu")
    assert candidate.setup(2, "cpu") == state
    assert candidate.call(state, (0,)) == "of the candidate"


def test_a_candidate_that_takes_no_state_gets_none(write) -> None:
    base = write(
        "def inputs(seed, device): ...\ndef setup(seed, device): return 1\ndef run(state, a): ...", "base.py"
    )
    candidate = load(write("def run(a): return a"), "candidate", "native", baseline_path=base)
    assert not candidate.has_state
    assert candidate.call(None, (5,)) == 5


def test_a_candidates_own_setup_is_used(write) -> None:
    path = write("def setup(seed, device): return seed\ndef run(state, a): return state, a")
    candidate = load(path, "candidate", "native")
    assert candidate.call(candidate.setup(9, "cpu"), (5,)) == (9, 5)
    assert not candidate.borrows_setup


@pytest.mark.parametrize(
    ("body", "count"), [("3", 1), ("(1, 2)", 2), ("[1, 2]", 2), ("{'a': 1}", 1), ("()", 0)]
)
def test_a_tuple_or_list_is_spread_and_anything_else_is_one_argument(write, body: str, count: int) -> None:
    path = write(f"def inputs(seed, device): return {body}\ndef run(*args): return len(args)")
    baseline = load(path, "baseline")
    assert baseline.inputs is not None
    assert baseline.call(None, baseline.inputs(0, "cpu", None)) == count


def test_inputs_that_forget_the_seed_still_depend_on_it(write) -> None:
    draw = "return torch.rand(3), random.random()"
    path = write(f"import random, torch\ndef inputs(seed, device): {draw}\ndef run(): ...")
    inputs = load(path, "baseline").inputs
    assert inputs is not None
    first, again, other = inputs(1, "cpu", None), inputs(1, "cpu", None), inputs(2, "cpu", None)
    assert torch.equal(first[0], again[0])
    assert first[1] == again[1]
    assert not torch.equal(first[0], other[0])


def test_a_number_as_tolerance_bounds_both(write) -> None:
    path = write("tolerance = 1e-3\ndef inputs(seed, device): ...\ndef run(): ...")
    assert load(path, "baseline").tolerance == {"rms": 1e-3, "max": 1e-3}


def test_a_declaration_computed_wrongly_is_refused_on_loading(write) -> None:
    path = write("tolerance = 1e-3 * 10**6\ndef inputs(seed, device): ...\ndef run(): ...")
    with pytest.raises(TracksideError, match=r"tolerance = 1000\.0"):
        load(path, "baseline")


def test_a_stale_cache_of_equal_size_and_time_is_not_run(write, tmp_path: Path) -> None:
    path = write("def run(a): return 1")
    stamp = path.stat()
    cache = Path(py_compile.compile(str(path), doraise=True) or "")
    path.write_text("def run(a): return 2")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert load(path, "candidate", "native").call(None, (0,)) == 2
    assert list(tmp_path.rglob("*.pyc")) == [cache]


def test_helpers_beside_the_file_win_over_installed_ones(write) -> None:
    write("def name(): return 'beside'", "yaml_of_mine.py")
    path = write("import yaml_of_mine\ndef run(): return yaml_of_mine.name()")
    assert load(path, "candidate", "native").call(None, ()) == "beside"
    assert sys.path[0] == str(path.parent.resolve())


def test_two_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w.py").write_text(f"def run(): return {value}")
    first = load(tmp_path / "a" / "w.py", "candidate", "native")
    second = load(tmp_path / "b" / "w.py", "candidate", "native")
    assert (first.call(None, ()), second.call(None, ())) == (1, 2)


@pytest.mark.parametrize(
    ("source", "kind", "said"),
    [
        ("import no_such_package_here\ndef run(): ...", "missing-dependency", "no_such_package_here"),
        ("def run(): ...\n\n1 / 0", "workload", "workload.py:3"),
        ("import sys\ndef run(): ...\nsys.exit(3)", "workload", "SystemExit"),
        ("import broken\ndef run(): ...", "workload", "broken.py:2"),
        ("run = 3", "workload", "`run` of type int"),
        ("async def run(): ...", "workload", "coroutine"),
        ("from broken_not import *", "missing-dependency", "broken_not"),
        ("from empty import *", "workload", "without `run`"),
    ],
)
def test_a_file_that_does_not_load_says_where(write, source: str, kind: str, said: str) -> None:
    write("x = 1\ndef (:", "broken.py")
    write("", "empty.py")
    path = write(source)
    with pytest.raises(TracksideError) as caught:
        load(path, "candidate", "native")
    assert caught.value.kind == kind
    assert said in caught.value.message


def test_a_file_that_fails_to_load_leaves_no_half_made_module(write) -> None:
    with pytest.raises(TracksideError):
        load(write("def run(): ...\n1 / 0"), "candidate", "native")
    assert not [name for name in sys.modules if name.startswith("_trackside_candidate_workload")]


def test_a_failure_inside_inputs_names_its_line(write) -> None:
    path = write("def inputs(seed, device):\n    return {}['gone']\ndef run(a): ...")
    inputs = load(path, "baseline").inputs
    assert inputs is not None
    with pytest.raises(TracksideError, match=r"KeyError: 'gone' at .*workload\.py:2 while running `inputs`"):
        inputs(0, "cpu", None)


def test_running_out_of_memory_is_left_for_the_caller_to_explain(write) -> None:
    path = write("def inputs(seed, device):\n    raise MemoryError\ndef run(a): ...")
    inputs = load(path, "baseline").inputs
    assert inputs is not None
    with pytest.raises(MemoryError):
        inputs(0, "cpu", None)


def test_inputs_that_return_nothing_are_refused(write) -> None:
    inputs = load(write("def inputs(seed, device): ...\ndef run(a): ..."), "baseline").inputs
    assert inputs is not None
    with pytest.raises(TracksideError, match="returned None"):
        inputs(0, "cpu", None)
