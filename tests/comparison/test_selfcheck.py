"""Selfcheck: plan, rates, pooling, and real comparisons run to their end or interrupted."""

import gzip
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from trackside.comparison import selfcheck_plan
from trackside.comparison.selfcheck import read_outcome
from trackside.comparison.selfcheck_plan import EXPERIMENTS, LEVELS, WORKLOADS, Trial, plan, write_workload
from trackside.comparison.selfcheck_rates import find, linearity, medians, rates, reciprocal
from trackside.records.errors import TracksideError
from trackside.records.selfcheck import Rate, SelfcheckRun

Start = Callable[..., subprocess.CompletedProcess[str]]


def run_of(experiment: str = "aa", verdict: str | None = "equivalent", **changed: Any) -> SelfcheckRun:
    fields = {"workload": "mix", "percent": 0.0, "swapped": False, "group": 0, "session": 0, "seconds": 30.0}
    error = "timeout: it hung" if verdict is None else None
    return SelfcheckRun.model_validate(
        {"experiment": experiment, "verdict": verdict, "error": error} | fields | changed
    )


def rate_of(runs: list[SelfcheckRun], experiment: str, what: str, workload: str = "mix") -> Rate:
    (rate,) = [r for r in rates(runs) if (r.experiment, r.what, r.workload) == (experiment, what, workload)]
    return rate


# -- plan ----------------------------------------------------------------------------------------------


def test_a_plan_has_as_many_injected_as_identical_pairs_and_some_of_the_rest() -> None:
    units = plan("cuda", 60)
    assert Counter(unit[0].experiment for unit in units) == {
        "aa": 60,
        "injected": 60,
        "swap": 6,
        "linearity": 2,
    }
    injected = Counter(u[0].workload for u in units if u[0].experiment == "injected")
    assert injected == {"copy": 15, "gemm": 15, "softmax": 15, "pointwise": 15}


def test_a_plan_cut_short_has_its_share_of_each_experiment() -> None:
    half = plan("cuda", 60)[:64]
    assert Counter(unit[0].experiment for unit in half) == {
        "aa": 30,
        "injected": 30,
        "swap": 3,
        "linearity": 1,
    }


def test_swaps_and_levels_stay_together() -> None:
    units = {unit[0].experiment: unit for unit in plan("cpu", 1)}
    assert [(t.percent, t.swapped) for t in units["swap"]] == [(5.0, False), (5.0, True)]
    assert tuple(t.percent for t in units["linearity"]) == LEVELS


def test_a_second_call_goes_on_with_the_next_workload_and_number() -> None:
    (unit,) = plan("cuda", 1, ("aa",), done={"aa": 5})
    assert unit == (Trial("aa", "gemm", 0.0, group=5),)


def test_a_workload_of_the_other_device_is_refused() -> None:
    with pytest.raises(TracksideError, match="gemm"):
        plan("cpu", 1, EXPERIMENTS, ("gemm",))


# -- built-in workloads --------------------------------------------------------------------------------


def imported(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("workload", [w.name for w in WORKLOADS])
def test_extra_work_changes_one_line_of_a_workload(workload: str, tmp_path: Path) -> None:
    write_workload(workload, 0.0, tmp_path / "a.py")
    write_workload(workload, 2.0, tmp_path / "b.py")
    a, b = ((tmp_path / name).read_text().splitlines() for name in ("a.py", "b.py"))
    assert [(x, y) for x, y in zip(a, b, strict=True) if x != y] == [
        ("EXTRA_PERCENT = 0.0", "EXTRA_PERCENT = 2.0")
    ]


@pytest.mark.parametrize("percent", [5.0, 40.0])
def test_extra_work_on_a_cpu_is_that_many_more_of_the_same_operators(percent: float, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.calls: Counter[tuple[str, tuple[Any, ...]]] = Counter()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            sizes = tuple(tuple(a.shape) for a in args if isinstance(a, torch.Tensor))
            self.calls[str(func), sizes] += 1
            return func(*args, **(kwargs or {}))

    counted, outputs = [], []
    for name, extra in (("plain", 0.0), ("more", percent)):
        write_workload("mix", extra, tmp_path / f"{name}.py")
        module = imported(tmp_path / f"{name}.py")
        given = module.inputs(7, "cpu")
        with Count() as count:
            outputs.append(module.run(*given))
        counted.append(count.calls)
    # Seen once to differ in a last bit, in a process that other tests had used, for a cause not found.
    torch.testing.assert_close(*outputs)
    plain, more = counted
    # The output's allocation is the only call that does not grow.
    grown = {key: more[key] / plain[key] for key in plain if plain[key] > 1}
    assert len(plain) == len(grown) + 1
    assert set(grown.values()) == {1 + percent / 100}


def test_calibration_finds_the_amount_behind_a_fixed_cost() -> None:
    torch = pytest.importorskip("torch")
    del torch
    from trackside.comparison.selfcheck_workloads.calibration import _search

    # 132 µs, and a kernel that costs 1 µs plus 0.5 ns per cycle: 2 % are 2.64 µs, so 3280 cycles.
    amount = _search(lambda cycles: (0.132, 0.001 + cycles * 0.5e-6), 0.02, 20_000, 4_000_000)
    assert abs(amount - 3280) < 140


def test_calibration_says_when_a_kernel_cannot_be_that_short() -> None:
    pytest.importorskip("torch")
    from trackside.comparison.selfcheck_workloads.calibration import _search

    with pytest.raises(RuntimeError, match=r"5\.0%"):
        _search(lambda cycles: (0.006, 0.001 + cycles * 0.5e-6), 0.05, 1_000, 4_000_000)


# -- rates ---------------------------------------------------------------------------------------------


def test_false_verdicts_are_counted_with_their_exact_interval() -> None:
    runs = [run_of(verdict="slower")] * 2 + [run_of(verdict="faster")] + [run_of()] * 97
    rate = rate_of(runs, "aa", "false")
    assert (rate.k, rate.n) == (3, 100)
    # From a table of Clopper-Pearson intervals.
    assert (rate.low, rate.high) == pytest.approx((0.0062, 0.0852), abs=1e-4)
    assert rate.verdicts == {"slower": 2, "faster": 1, "equivalent": 97}


def test_a_failed_comparison_is_no_false_verdict_but_misses_a_slowdown() -> None:
    runs = [run_of(verdict=None), run_of(), run_of("injected", None, percent=5.0)]
    assert rate_of(runs, "aa", "false").n == 1
    found = rate_of(runs, "injected", "found")
    assert (found.k, found.n) == (0, 1)


def test_rates_are_given_by_workload_and_over_all() -> None:
    runs = [run_of(workload=name, verdict="slower") for name in ("copy", "gemm")] + [run_of(workload="gemm")]
    shown = {r.workload: (r.k, r.n) for r in rates(runs) if r.what == "false"}
    assert shown == {"copy": (1, 1), "gemm": (1, 2), "all": (2, 3)}


def test_a_slowdown_called_equivalent_is_wrong_and_an_open_one_is_not() -> None:
    verdicts = ("slower", "equivalent", "inconclusive", "faster")
    runs = [run_of("injected", verdict, percent=5.0) for verdict in verdicts]
    assert rate_of(runs, "injected", "found").k == 1
    assert rate_of(runs, "injected", "wrong").k == 2


def test_swapped_ratios_agree_when_one_interval_inverted_overlaps_the_other() -> None:
    one = run_of("swap", "slower", percent=5.0, ratio=0.95, low=0.94, high=0.96)
    inverse = run_of("swap", "faster", percent=5.0, swapped=True, ratio=1.05, low=1.045, high=1.07)
    same = run_of("swap", "slower", percent=5.0, swapped=True, ratio=0.95, low=0.94, high=0.96)
    assert reciprocal(one, inverse)
    assert not reciprocal(one, same)
    unpaired = run_of("swap", "slower", percent=5.0, group=1, ratio=0.95, low=0.94, high=0.96)
    rate = rate_of([one, inverse, unpaired], "swap", "reciprocal")
    assert (rate.k, rate.n) == (1, 1)


def levels(exponent: float) -> list[SelfcheckRun]:
    return [
        run_of("linearity", "slower", percent=p, ratio=(1 + p / 100) ** -exponent) for p in (*LEVELS, *LEVELS)
    ]


def test_true_ratios_have_slope_one() -> None:
    (line,) = linearity(levels(1.0))
    assert (line.slope, line.offset) == pytest.approx((1, 0), abs=1e-9)
    assert find(levels(1.0), [], [line]) == []


def test_a_harness_that_shrinks_differences_is_found_by_its_slope() -> None:
    runs = levels(0.8)
    (line,) = linearity(runs)
    assert line.slope == pytest.approx(0.8)
    assert ["slope 0.800" in text for text in find(runs, [], [line])] == [True]


@pytest.mark.parametrize(("false", "findings"), [(10, 0), (11, 1)])
def test_eleven_false_verdicts_of_a_hundred_fail(false: int, findings: int) -> None:
    runs = [run_of(verdict="slower")] * false + [run_of()] * (100 - false)
    assert len(find(runs, rates(runs), [])) == findings


def test_missing_most_slowdowns_rejecting_honest_code_and_a_wrong_sign_are_findings() -> None:
    missed = [run_of("injected", "inconclusive", percent=5.0)] * 40
    rejected = run_of(verdict="rejected", reason="output-matches-oracle: off by one")
    backwards = run_of("swap", "slower", percent=5.0, swapped=True)
    found = find([*missed, rejected, backwards], rates(missed), [])
    assert [text.split(":")[0] for text in found] == [
        "a known slowdown was found too seldom",
        "honest code was rejected",
        "5 % more work in the baseline on mix made the candidate slower",
    ]


def test_medians_are_taken_by_workload() -> None:
    runs = [run_of(half_width=w, seconds=s) for w, s in ((0.01, 10.0), (0.03, 30.0), (0.02, 20.0))]
    assert medians(runs) == ({"mix": 0.02}, {"mix": 20.0})


# -- what a child said ---------------------------------------------------------------------------------


def test_an_error_document_and_a_crash_are_both_told() -> None:
    document = json.dumps({"error": {"kind": "busy", "message": "cpu is in use", "remedy": "wait"}}).encode()
    assert read_outcome(2, document, "") == {"verdict": None, "error": "busy: cpu is in use"}
    crash = read_outcome(-11, b"", "Fatal Python error")
    assert crash["verdict"] is None
    assert "signal 11" in crash["error"]
    assert "Fatal Python error" in crash["error"]


# -- the real program ----------------------------------------------------------------------------------


def test_a_second_call_with_the_same_folder_adds_a_session(trackside: Start, tmp_path: Path) -> None:
    # One second is too short for any comparison, so only the pooling happens.
    for sessions in (1, 2):
        done = trackside("selfcheck", "--out", str(tmp_path / "out"), "--seconds", "1", "--json")
        assert done.returncode == 4, done.stderr
        document = json.loads(done.stdout)
        assert document["schema"] == "trackside.selfcheck/1"
        assert document["holds"] is None
        assert len(document["sessions"]) == sessions
        assert document["sessions"][-1]["planned"] == 26
        assert json.loads((tmp_path / "out" / "results.json").read_text()) == document
    shown = trackside("runs", "list", "--json")
    assert [run["verb"] for run in json.loads(shown.stdout)["runs"]] == ["selfcheck", "selfcheck"]


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("source_sha256", "0" * 64, "sha256 0000"),
        ("device", "cuda", "device cuda"),
        ("budget", 9.0, "budget 9 s"),
    ],
)
def test_runs_that_must_not_be_pooled_are_refused(
    trackside: Start, tmp_path: Path, home: Path, field: str, value: object, says: str
) -> None:
    arguments = ("selfcheck", "--out", str(tmp_path / "out"), "--seconds", "1", "--json")
    trackside(*arguments)
    results = tmp_path / "out" / "results.json"
    changed = json.loads(results.read_text()) | {field: value}
    results.write_text(json.dumps(changed))
    refused = trackside(*arguments)
    assert refused.returncode == 2
    error = json.loads(refused.stdout)["error"]
    assert error["kind"] == "usage"
    assert says in error["message"]
    assert json.loads(results.read_text()) == changed
    assert len(list((home / "runs").iterdir())) == 1


def test_the_hash_changes_with_any_source_of_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("comparison/selfcheck_workloads", "workload", "stats", "report"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "x.py").write_text("x = 1\n")
    monkeypatch.setattr(selfcheck_plan, "_FOLDER", tmp_path / "comparison" / "selfcheck_workloads")
    first = selfcheck_plan.source_sha256()
    (tmp_path / "report" / "x.py").write_text("x = 2\n")
    assert selfcheck_plan.source_sha256() == first
    (tmp_path / "workload" / "x.py").write_text("x = 2\n")
    assert selfcheck_plan.source_sha256() != first


def test_an_unknown_experiment_is_refused(trackside: Start) -> None:
    refused = trackside("selfcheck", "--experiment", "bb")
    assert refused.returncode == 2
    assert "aa, injected, swap, linearity" in refused.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_comparison_leaves_its_verdict_and_raw_quads(tmp_path: Path, home: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "out"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "trackside", "selfcheck", "--runs", "1", "--experiment", "aa"),
            *("--budget", "8", "--out", str(out), "--json"),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["verdict"] is not None, run["error"]
    raw = json.loads(gzip.decompress((out / run["raw"]).read_bytes()))
    assert raw["record"]["run_id"] == run["run_id"]
    pairs = raw["quads"][0]["pairs"]
    # Twelve, or fewer where so short a budget has no time for them; in balance in any case.
    assert 6 <= len(pairs) <= 12
    firsts = raw["quads"][0]["first"]
    assert len(firsts) == len(pairs)
    assert abs(firsts.count("baseline") - firsts.count("candidate")) <= 1
    assert {quad["order"] for pair in pairs for quad in pair} <= {"ABBA", "BAAB"}
    assert run["half_width"] == pytest.approx(math.log(run["high"] / run["low"]) / 2)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_the_results_and_leaves_no_process(
    number: signal.Signals, tmp_path: Path, home: Path
) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "trackside", "selfcheck", "--runs", "1", "--out", str(out), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TRACKSIDE_HOME": str(home)},
    )
    me = psutil.Process(process.pid)
    while not (children := me.children(recursive=True)):
        time.sleep(0.05)
    time.sleep(2)
    children = me.children(recursive=True)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    document = json.loads(output)
    assert document["runs"] == []
    assert document["sessions"][0]["interrupted"]
    assert (out / "results.json").exists()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_selfcheck_that_is_killed_takes_its_comparison_with_it(tmp_path: Path, home: Path) -> None:
    pytest.importorskip("torch")
    process = subprocess.Popen(
        [sys.executable, "-m", "trackside", "selfcheck", "--runs", "1", "--out", str(tmp_path / "out")],
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TRACKSIDE_HOME": str(home)},
    )
    me = psutil.Process(process.pid)
    while len(children := me.children(recursive=True)) < 3:
        time.sleep(0.05)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []
