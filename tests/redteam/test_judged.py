"""The judge of the corpus itself: which verdicts fit, and that no case is lost or counted as good unseen."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.redteam import judged, matrix, naive
from tests.redteam.corpus import NEVER_CERTIFIED, NOT_FASTER, REJECTED, case_named
from tests.redteam.judged import PASSES, Judged

FALSE = case_named("replay_memo_data_ptr")
HONEST = case_named("honest_identical")
NAMES = (FALSE.name, HONEST.name)


def answer(verdict: str) -> Judged:
    return Judged("name", verdict, None, "", 1.0, None)


@pytest.mark.parametrize(
    ("verdict", "fits"),
    [("rejected", True), ("not-comparable", False), ("inconclusive", False), (PASSES, False)],
)
def test_a_case_that_must_be_rejected_allows_nothing_else(verdict: str, fits: bool) -> None:
    assert FALSE.expect == REJECTED
    assert answer(verdict).fits(FALSE, full=False) is fits


@pytest.mark.parametrize(
    "case",
    [
        replace(FALSE, caught_by=("clocks-agree", "above-floor")),
        replace(FALSE, caught_by=()),
        replace(FALSE, expect=NOT_FASTER),
        replace(FALSE, name="arithmetic_race"),
        HONEST,
    ],
)
def test_a_pass_fits_where_only_timing_luck_or_nothing_gives_a_case_away(case: judged.Case) -> None:
    assert answer(PASSES).fits(case, full=False)


def test_a_race_allows_only_what_its_case_does() -> None:
    race = replace(FALSE, name="arithmetic_race", expect=NEVER_CERTIFIED)
    assert answer("inconclusive").fits(race, full=False)
    assert not answer("equivalent").fits(race, full=False)


@pytest.mark.parametrize("verdict", ["rejected", "not-comparable", "inconclusive"])
def test_an_honest_case_must_pass(verdict: str) -> None:
    assert not answer(verdict).fits(HONEST, full=False)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("case", [FALSE, HONEST])
def test_an_error_fits_nothing(case: judged.Case, full: bool) -> None:
    assert not answer("error:internal").fits(case, full)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["replay_memo_data_prt"], "no case replay_memo_data_prt on cpu"),
        ([FALSE.name, "nonsense", "--jobs", "2"], "no case nonsense on cpu"),
        ([FALSE.name, "--kind", "honest"], f"no honest case {FALSE.name} on cpu"),
    ],
)
def test_a_misspelt_case_is_wrong_use(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        judged.main(arguments)
    assert caught.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ('cp {rows} "$out"', 0),
        ('cp {rows} "$out"; case "$*" in *"--part 2"*) kill -9 $$;; esac', 1),
        ("exit 0", 1),
    ],
    ids=["both end well", "the second is killed", "neither leaves rows"],
)
def test_jobs_count_as_good_only_if_all_end_well_with_all_cases(
    job: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, python = tmp_path / "rows.json", tmp_path / "python"
    rows.write_text(json.dumps({"rows": [{"name": name} for name in NAMES]}))
    python.write_text(f"#!/bin/sh\nfor out; do :; done\n{job.format(rows=rows)}\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    assert judged.main([*NAMES, "--jobs", "2"]) == code
    lost = "no answer for 2 cases" if job == "exit 0" else ""
    assert lost in capsys.readouterr().err


def save(out: Path, name: str, full: bool = False, device: str = "cpu") -> list[str]:
    """Names in the file after a run with one row."""
    arguments = argparse.Namespace(out=out, full=full, device=device, naive=False)
    judged._save(arguments, [{"name": name} | judged._sources("cpu")])
    return [row["name"] for row in json.loads(out.read_text())["rows"]]


def test_rows_are_pooled_only_with_those_of_the_same_question(tmp_path: Path) -> None:
    out = tmp_path / "results" / "out.json"
    assert save(out, "a") == ["a"]
    assert save(out, "b") == ["a", "b"]
    assert save(out, "c", full=True) == ["c"]
    assert save(out, "d", full=True, device="cuda") == ["d"]
    assert [path.name for path in out.parent.iterdir()] == ["out.json"]


def test_the_rest_are_cases_without_a_row_and_none_begins_when_time_is_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    save(out, NAMES[0])
    assert judged.main([*NAMES, "--rest", "--out", str(out), "--seconds", "-1"]) == 1
    assert f"stopped after 0 of {len(NAMES) - 1} cases" in capsys.readouterr().err


@pytest.mark.parametrize(("speedup", "fits"), [(1.04, False), (1.06, True), (None, True)])
def test_a_false_case_must_fool_the_usual_check_by_more_than_noise(
    speedup: float | None, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naive, "run_naive", lambda *_: naive.NaiveResult(True, speedup))
    (row,) = judged._naive_rows([FALSE], "cpu")
    assert row["fits"] is fits


def test_a_win_against_the_usual_check_outlives_a_machine_on_which_it_is_none(tmp_path: Path) -> None:
    out = tmp_path / "cpu-naive.json"
    arguments = argparse.Namespace(out=out, full=False, device="cpu", naive=True)
    for machine, fits in (("slow subnormals", True), ("fast subnormals", False)):
        row = {"name": "a", "fits": fits} | judged._sources("cpu") | {"machine": machine}
        judged._save(arguments, [row])
    assert [row["machine"] for row in json.loads(out.read_text())["rows"]] == ["slow subnormals"]


def test_a_row_of_other_sources_stays_in_the_file_and_is_among_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    with monkeypatch.context() as other:
        other.setattr(judged, "source_sha256", lambda: "of another day")
        save(out, NAMES[0])
    assert save(out, NAMES[1]) == list(NAMES)
    assert [row["source_sha256"] for row in json.loads(out.read_text())["rows"]][:1] == ["of another day"]
    assert judged.main([*NAMES, "--rest", "--out", str(out), "--seconds", "-1"]) == 1
    assert f"stopped after 0 of {len(NAMES) - 1} cases" in capsys.readouterr().err


def test_the_matrix_says_which_commit_gave_a_verdict_and_where_sources_differed_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "RESULTS", tmp_path)
    row = {"kind": "honest", "family": "f", "verdict": "faster", "ratio": 2.0, "fits": True}
    arguments = argparse.Namespace(out=tmp_path / "cpu-full.json", full=True, device="cpu", naive=False)
    for name, commit in (("early", "a" * 40), ("late", f"{'0123456789' * 4} with changes")):
        monkeypatch.setenv("TRACKSIDE_COMMIT", commit)
        judged._save(arguments, [row | {"name": name} | judged._sources("cpu")])
    assert "| early | faster | 2.000 | `aaaaaaaaaaaa`," in matrix.page()
    assert "| late | faster | 2.000 | `012345678901 with changes`," in matrix.page()
