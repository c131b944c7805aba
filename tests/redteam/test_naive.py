"""The corpus earns its name: every false case wins under the usual way of checking, honest ones pass it."""

import pytest
from tests.redteam.corpus import CASES, Case
from tests.redteam.naive import NaiveResult, run_naive

FALSE = [case for case in CASES if case.kind == "false" and case.device == "cpu"]
HONEST = [case for case in CASES if case.kind == "honest" and case.device == "cpu"]
# Some wins need a moment's peace on a shared machine (a second core, a thread that finishes in time).
ATTEMPTS = 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def _attempts(case: Case) -> list[NaiveResult]:
    results: list[NaiveResult] = []
    for _ in range(ATTEMPTS):
        results.append(run_naive(case))
        if results[-1].fooled:
            break
    return results


@pytest.mark.parametrize("case", FALSE, ids=lambda case: case.name)
def test_false_case_is_accepted_as_a_gain_by_the_usual_check(case: Case) -> None:
    results = _attempts(case)
    assert any(result.fooled for result in results), results


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_honest_case_is_accepted_by_the_usual_check(case: Case) -> None:
    results = _attempts(case) if case.expect == {"faster"} else [run_naive(case)]
    assert all(result.accepted for result in results), results
    if case.expect == {"faster"}:
        assert results[-1].fooled, results
