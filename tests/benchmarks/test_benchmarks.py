"""The parts of the benchmarks that need no device: reading ncu's table, judging bars, writing the page."""

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from benchmarks.context import Bar, Compared, Context, Outcome
from benchmarks.publish import publish

from benchmarks import __main__ as program
from benchmarks import budget, context, ncu, rejection, selfcheck, side_by_side, store, table

# As `ncu --csv --page raw --print-units base` prints it, shortened to the columns that are read.
NCU = """==PROF== Connected to process 71 (/usr/bin/python3.12)
==PROF== Profiling "vectorized_elementwise_kernel": 0%....50%....100% - 1 pass
{"events_us": 1}
"ID","Process ID","Kernel Name","gpu__time_duration.sum","smsp__cycles_elapsed.avg.per_second"
"","","","ns","hz"
"0","71","split","5,000","1,980,000,000"
"1","71","add","1,000","1,970,000,000"
"2","71","split","5,400","1,980,000,000"
"3","71","add","1,200","1,975,000,000"
"""


def test_kernels_of_one_call_are_added_up() -> None:
    found = ncu.parse(NCU, 2)
    assert found["us"] == pytest.approx(6.3)
    assert (found["least_us"], found["most_us"]) == (6.0, 6.6)
    assert found["mhz"] == pytest.approx(1977.5)
    assert found["kernels"] == ["add", "split"]


@pytest.mark.parametrize("text", [NCU.split('"ID"')[0], NCU + '"4","71","split","5,000","1"\n'])
def test_a_table_that_does_not_fit_the_calls_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no table|5 kernels in 2 calls"):
        ncu.parse(text, 2)


@pytest.mark.parametrize(
    ("events", "mhz", "passed"), [(180.0, 1980.0, True), (184.0, 1980.0, False), (180.0, 1900.0, None)]
)
def test_ncu_and_events_must_agree_at_one_clock(events: float, mhz: float, passed: bool | None) -> None:
    row = {
        "workload": "gemm",
        "compare_us": events,
        "compare_mhz": mhz,
        "ncu_all": {"us": 178.0, "mhz": 1979.0},
    }
    assert ncu.judge(row, "all").passed is passed


@pytest.mark.parametrize(
    ("row", "profile", "passed"),
    [
        ({"compare_us": None, "error": "the GPU fell\noff the bus"}, {"us": 178.0, "mhz": 1979.0}, False),
        ({"compare_us": 180.0}, {"error": "found 30 kernels in 20 calls"}, False),
        ({"compare_us": 180.0}, {"error": "ncu ran out of time", "out_of_time": True}, None),
    ],
)
def test_a_time_that_is_not_there_agrees_with_nothing(
    row: dict[str, Any], profile: dict[str, Any], passed: bool | None
) -> None:
    bar = ncu.judge({"workload": "gemm", "ncu_all": profile} | row, "all")
    assert bar.passed is passed
    assert (row.get("error") or profile["error"]).split("\n")[0] in bar.found
    assert "\n" not in bar.found


@pytest.mark.parametrize(
    ("passed", "excused", "failed"),
    [
        ([True, None], False, False),
        ([True, False], True, True),
        ([], False, True),
        ([], True, False),
    ],
)
def test_a_part_without_bars_fails_unless_it_is_excused(
    passed: list[bool | None], excused: bool, failed: bool
) -> None:
    bars = [Bar("b", "w", "f", each) for each in passed]
    assert Outcome(bars, {}, excused=excused).failed is failed


@pytest.mark.parametrize("excused", [False, True])
def test_the_program_fails_with_a_part_that_fell_over(
    excused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(budget, "run", lambda context: Outcome([], {}, False, excused=excused))
    monkeypatch.setattr("sys.argv", ["benchmarks", "--part", "budget", "--results", str(tmp_path)])
    assert program.main() == (0 if excused else 1)
    assert ("FAIL  budget" in capsys.readouterr().out) is not excused


def test_a_rejection_that_never_comes_is_a_missed_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejection, "compare", lambda *_: Compared(None, 1.0, "broken", tmp_path))
    outcome = rejection.run(Context("cpu", None, tmp_path))
    assert [(bar.found, bar.passed) for bar in outcome.bars] == [(f"0 of {rejection.CASES}", False)]


def test_no_time_for_a_rejection_is_an_excuse(tmp_path: Path) -> None:
    outcome = rejection.run(Context("cpu", 1.0, tmp_path))
    assert (outcome.bars, outcome.excused, outcome.complete) == ([], True, False)


def test_a_selfcheck_that_ends_with_an_error_is_a_missed_bar(tmp_path: Path) -> None:
    outcome = selfcheck.run(Context("cpu", None, tmp_path, budget=1.0))
    (bar,) = outcome.bars
    assert bar.passed is False
    assert "exit code 2: found --budget 1.0; needed: 5 to 86400 seconds" in bar.found


def earlier_selfcheck(folder: Path, source: str) -> None:
    """Results with all comparisons of a benchmark of one, none of them with a verdict."""
    units = {"aa": 1, "injected": 1, "swap": selfcheck.SWAPS, "linearity": selfcheck.SETS}
    runs = [{"experiment": name, "group": i} for name, count in units.items() for i in range(count)]
    record = {"source_sha256": source, "holds": None, "findings": [], "runs": runs}
    (folder / "selfcheck").mkdir()
    (folder / "selfcheck" / "results.json").write_text(
        json.dumps(record | {"rates": [], "linearity": [], "half_width": {}})
    )


def test_a_selfcheck_without_verdicts_is_a_missed_bar(tmp_path: Path) -> None:
    asked = Context("cpu", None, tmp_path, runs=1)
    earlier_selfcheck(tmp_path, asked.identity["source_sha256"])
    (bar,) = selfcheck.run(asked).bars
    assert (bar.found, bar.passed) == ("none in 7 comparisons", False)


def test_a_selfcheck_is_asked_for_what_it_lacks_of_the_number_fixed_before(tmp_path: Path) -> None:
    runs = [{"experiment": "aa", "group": i} for i in range(40)]
    (tmp_path / "results.json").write_text(json.dumps({"runs": runs}))
    wanted = selfcheck._wanted(Context("cpu", None, tmp_path))
    lacking = selfcheck._missing(tmp_path, wanted)
    assert lacking == {"aa": 60, "injected": 30, "swap": 3, "linearity": 2}
    # Swaps come with every tenth comparison, as slowdowns with every one: thirty of both are one run.
    assert selfcheck._together(lacking) == [
        (60, ["aa"]),
        (30, ["injected", "swap"]),
        (50, ["linearity"]),
    ]


def test_results_of_other_sources_are_not_passed_off_as_todays(tmp_path: Path) -> None:
    earlier_selfcheck(tmp_path, "of yesterday")
    (bar,) = selfcheck.run(Context("cpu", None, tmp_path, runs=1)).bars
    assert bar.passed is False
    assert "other sources" in bar.found


@pytest.mark.parametrize(
    ("verdicts", "ratios", "passed", "told"),
    [
        (["equivalent", "inconclusive"], [1.001, 1.01], [True, True], "0 of 2"),
        (["equivalent", "slower"], [1.0, 0.9], [False, False], "1 of 2, 1 slower"),
        (["equivalent", "rejected"], [1.0], [True, False], "1 of 2, 1 rejected"),
        (["error", "error"], [], [False, False], "2 of 2, 2 error"),
    ],
)
def test_every_comparison_beside_the_usual_tools_counts(
    verdicts: list[str], ratios: list[float], passed: list[bool], told: str
) -> None:
    bars = side_by_side._bars("cuda", verdicts, ratios)
    assert [bar.passed for bar in bars] == passed
    assert bars[1].found == told


def test_on_a_cpu_no_ratio_at_all_fails_where_ratios_only_inform() -> None:
    ratio, _ = side_by_side._bars("cpu", ["equivalent"], [1.5])
    assert ratio.passed is None
    ratio, _ = side_by_side._bars("cpu", ["error"], [])
    assert ratio.passed is False


def test_a_comparison_ended_by_the_time_limit_says_so(tmp_path: Path) -> None:
    with context.workload_pair("mix", 0.0) as (baseline, candidate):
        found = context.compare(Context("cpu", 0.0, tmp_path), baseline, candidate, tmp_path)
    assert (found.verdict, found.out_of_time, found.error) == ("error", True, "stopped: no time left")


def test_the_commit_is_marked_where_sources_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=e")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(context, "ROOT", tmp_path)
    monkeypatch.delenv("TRACKSIDE_COMMIT", raising=False)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "file.py").write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    clean = context.commit()
    assert clean is not None
    assert len(clean) == 40
    (tmp_path / "src" / "file.py").write_text("2")
    assert context.commit() == f"{clean} with changes"
    assert context.short_commit(f"{clean} with changes") == f"{clean[:12]} with changes"
    monkeypatch.setenv("TRACKSIDE_COMMIT", "as-told")
    assert context.commit() == "as-told"


def rate(what: str, k: int, n: int, workload: str = "mix") -> dict[str, Any]:
    experiment = {"false": "aa", "found": "injected", "reciprocal": "swap"}[what]
    return {
        "experiment": experiment,
        "what": what,
        "workload": workload,
        "k": k,
        "n": n,
        "low": 0.0,
        "high": 1.0,
    }


@pytest.mark.parametrize(
    ("kind", "k", "n", "passed"),
    [
        ("cpu", 5, 100, True),
        ("cpu", 6, 100, False),
        ("cpu", 6, 20, False),
        ("cpu", 0, 99, None),
        ("cuda", 3, 60, True),
        ("cuda", 4, 60, False),
    ],
)
def test_false_verdicts_fail_at_any_n_and_pass_at_the_full_one(
    kind: str, k: int, n: int, passed: bool | None
) -> None:
    assert selfcheck._false_bar(kind, rate("false", k, n)).passed is passed


def test_pooled_rates_decide_where_there_are_several_workloads() -> None:
    rates = [rate("found", 1, 15, "copy"), rate("found", 15, 15, "gemm"), rate("found", 57, 60, "all")]
    record = {"rates": rates, "linearity": [], "half_width": {"gemm": 0.0031}}
    found, width = selfcheck._bars("cuda", record)
    assert found.passed is True
    assert width.passed is False


def test_a_second_run_asks_only_for_what_is_missing(tmp_path: Path) -> None:
    wanted = selfcheck._wanted(Context("cuda", None, tmp_path))
    assert selfcheck._missing(tmp_path, wanted) == {"aa": 60, "injected": 60, "swap": 3, "linearity": 2}
    done = {"aa": 60, "injected": 48, "swap": 3, "linearity": 2}
    runs = [{"experiment": name, "group": i} for name, count in done.items() for i in range(count)]
    (tmp_path / "results.json").write_text(json.dumps({"runs": runs}))
    assert selfcheck._missing(tmp_path, wanted) == {"injected": 12}


def test_ratios_count_as_apart_in_both_directions() -> None:
    assert side_by_side._summary([1.0, 1.03, 1 / 1.03, 1.01]) == {
        "n": 4,
        "apart": 2,
        "worst": pytest.approx(0.03),
    }


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_rejections_are_timed_over_several_families(kind: str) -> None:
    chosen = rejection._chosen(kind)
    assert len({case.name for case in chosen}) == len(chosen) == rejection.CASES
    assert len({case.family for case in chosen}) >= 4


def test_the_page_shows_the_newest_results_and_survives_bars_in_cells(tmp_path: Path) -> None:
    part = {
        "part": "budget",
        "date": "2026-11-15T00:00:00+00:00",
        "commit": None,
        "machine": {"gpus": [], "cpu": "Xeon", "cpus": 2, "kernel": "6.1", "driver": None},
        "versions": {"python": "3.11", "triton": None},
        "complete": False,
        "notes": [],
        "bars": [{"name": "a | b", "wanted": "≤ 60 s", "found": "61 s", "passed": False}],
    }
    for date, found in (("2026-11-14", "59 s"), ("2026-11-15", "61 s")):
        (tmp_path / f"{date}-cpu").mkdir()
        part["bars"][0]["found"] = found  # type: ignore[index]
        (tmp_path / f"{date}-cpu" / "budget.json").write_text(json.dumps(part))
    page = table.text(tmp_path)
    assert "| budget | a \\| b | ≤ 60 s | 61 s | **fail** |" in page
    assert "59 s" not in page
    assert "stopped before its end" in page
    assert "Nothing was tuned" in page


def test_the_page_marks_changed_sources_and_names_what_was_measured(tmp_path: Path) -> None:
    part = {
        "part": "budget",
        "date": "2026-11-15T00:00:00+00:00",
        "commit": f"{'0123456789abcdef' * 2}01234567 with changes",
        "machine": {"gpus": ["H200"], "cpu": "Xeon", "cpus": 2, "kernel": "6.1", "driver": "580.1"},
        "versions": {"python": "3.11"},
        "complete": True,
        "notes": [],
        "bars": [],
    }
    for kind in ("cpu", "cuda"):
        (tmp_path / f"2026-11-15-{kind}").mkdir()
        (tmp_path / f"2026-11-15-{kind}" / "budget.json").write_text(json.dumps(part))
    page = table.text(tmp_path)
    cpu, gpu = page[page.index("## CPU") :].split("## GPU")
    assert cpu.startswith("## CPU: Xeon, 2 CPUs")
    assert gpu.startswith(": H200, 2 CPUs")
    assert ("580.1" in cpu, "580.1" in gpu) == (False, True)
    assert page.count("commit 0123456789ab with changes.") == 2


def test_a_page_without_results_claims_nothing_about_them(tmp_path: Path) -> None:
    page = table.text(tmp_path)
    assert "No results yet." in page
    assert "tuned" not in page


def test_the_page_in_the_repository_is_the_one_its_results_give() -> None:
    assert table.README.read_text() == table.text(table.RESULTS)


def test_published_results_have_the_same_figures_and_no_paths(tmp_path: Path) -> None:
    raw = {
        "record": {
            "seal": "ab",
            "baseline": {"path": "/home/me/project/one/mix.py"},
            "environment": {"folder": "/home/me/project"},
            "reasons": ["out of /home/me/project/one/mix.py: 3 bytes/s"],
        },
        "quads": [[1.5, 2.5]],
    }
    folder, target = tmp_path / "from", tmp_path / "to"
    (folder / "raw").mkdir(parents=True)
    (folder / "raw/c-1.json.gz").write_bytes(gzip.compress(json.dumps(raw).encode()))
    (folder / "results.json").write_text('{"folder": "/home/me/x", "rates": [{"k": 0, "n": 60}]}')
    assert publish(folder, target) == 2
    published = json.loads(gzip.decompress((target / "raw/c-1.json.gz").read_bytes()))
    assert published["quads"] == raw["quads"]
    assert published["record"] == {
        "baseline": {"path": "one/mix.py"},
        "environment": {"folder": ""},
        "reasons": ["out of one/mix.py: 3 bytes/s"],
    }
    assert json.loads((target / "results.json").read_text()) == {"folder": "", "rates": [{"k": 0, "n": 60}]}


@pytest.mark.parametrize(("times", "passed"), [([0.1, 0.15, 0.9], True), ([0.1, 0.21, 0.3], False)])
def test_a_list_is_judged_by_the_median_of_its_times(times: list[float], passed: bool) -> None:
    bar = store.judge({"runs": 10_000, "list": [0.001], "command": times})
    assert bar.passed is passed
    assert f"median {times[1] * 1e3:.0f} ms [100, {times[2] * 1e3:.0f}], n 3" in bar.found
