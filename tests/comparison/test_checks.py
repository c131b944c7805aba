"""The ledger: what outranks what, and that nothing is silently a pass."""

import pytest

from trackside.comparison.checks import CATALOGUE, Ledger, Stop


def by_id(ledger: Ledger) -> dict[str, dict]:
    return {row["id"]: row for row in ledger.to_records()}


def test_every_check_says_what_it_looks_for_and_what_it_catches() -> None:
    for name, check in CATALOGUE.items():
        assert check.id == name
        assert check.looks_for.endswith(".")
        assert check.catches


def test_a_check_that_was_not_reached_is_unknown_not_passed() -> None:
    rows = by_id(Ledger())
    assert set(rows) == set(CATALOGUE)
    assert {row["status"] for row in rows.values()} == {"unknown"}


def test_proof_that_the_candidate_is_wrong_stops_at_once() -> None:
    ledger = Ledger()
    with pytest.raises(Stop) as stop:
        ledger.failed("output-matches-oracle", "call 3, out[0]: expected 1, found 2")
    assert (stop.value.outcome, stop.value.check) == ("rejected", "output-matches-oracle")
    assert by_id(ledger)["output-matches-oracle"]["status"] == "fail"


def test_a_rejection_outranks_an_earlier_failure_of_the_conditions() -> None:
    ledger = Ledger()
    ledger.failed("environment-same", "threads differ")
    with pytest.raises(Stop) as stop:
        ledger.failed("aliasing", "returns its input")
    assert stop.value.outcome == "rejected"


def test_not_comparable_outranks_inconclusive_whichever_came_first() -> None:
    ledger = Ledger()
    ledger.failed("baseline-right", "differs")
    ledger.failed("environment-same", "threads differ")
    with pytest.raises(Stop) as stop:
        ledger.settle()
    assert stop.value.outcome == "not-comparable"


def test_nothing_pending_settles() -> None:
    ledger = Ledger()
    ledger.passed("isolation", "all there")
    ledger.settle()
    assert ledger.pending == []
    assert ledger.results["isolation"].status == "pass"


@pytest.mark.parametrize("status", ["warn", "fail"])
def test_a_later_pass_does_not_hide_an_earlier_objection(status: str) -> None:
    ledger = Ledger()
    if status == "warn":
        ledger.warned("machine-quiet", "noisy")
    else:
        ledger.failed("machine-quiet", "noisy")
    ledger.passed("machine-quiet", "quiet")
    ledger.unknown("machine-quiet", "never looked")
    assert by_id(ledger)["machine-quiet"] == {"id": "machine-quiet", "status": status, "detail": "noisy"}


def test_a_warning_does_not_soften_a_failure() -> None:
    ledger = Ledger()
    ledger.failed("no-leftovers", "process 7")
    ledger.warned("no-leftovers", "perhaps")
    assert by_id(ledger)["no-leftovers"]["status"] == "fail"


def test_a_check_that_is_switched_off_says_that_it_would_have_failed() -> None:
    ledger = Ledger(disabled=["aliasing"])
    ledger.failed("aliasing", "returns its input")
    ledger.settle()
    row = by_id(ledger)["aliasing"]
    assert row["status"] == "not_applicable"
    assert "returns its input" in row["detail"]
    assert ledger.suppressed == ["aliasing"]


def test_a_pass_after_a_switched_off_failure_does_not_read_as_a_pass() -> None:
    ledger = Ledger(disabled=["aliasing"])
    ledger.failed("aliasing", "returns its input")
    ledger.passed("aliasing", "shares memory where the baseline's does")
    assert by_id(ledger)["aliasing"]["status"] == "not_applicable"


def test_a_check_outside_the_catalogue_is_a_defect() -> None:
    with pytest.raises(AssertionError):
        Ledger().passed("made-up", "")
