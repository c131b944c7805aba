"""Accepted ratios: which change is called one, and where nothing can be said."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trackside.machine.facts import facts
from trackside.records.errors import TracksideError
from trackside.suite.accepted import AcceptedFile, accept, judge, machine_kind
from trackside.suite.pace import Pace, ShapePace
from trackside.suite.suite_file import LEAST_ACCEPTED_DELTA, Entry

HERE = {"cpu": "EPYC", "torch": "2.13"}
ENTRY = Entry("softmax", "accepted", Path("w.py"), Path("w.py"), Path("r.py"))


def pace(*logs: list[float], disturbed: str | None = None) -> Pace:
    return Pace([ShapePace(None if i == 0 else i, list(one)) for i, one in enumerate(logs)], 1, disturbed)


def drawn(rng: random.Random, mean: float, spread: float = 0.01, pairs: int = 12) -> list[float]:
    """Log ratios of one session: what moves it as a whole shows in no pair."""
    moved = rng.gauss(mean, 0.01)
    return [rng.gauss(moved, spread) for _ in range(pairs)]


def accepted(*logs: list[float]) -> dict[str, Any]:
    return accept(ENTRY, pace(*logs), HERE, "r1")


def outcome(before: list[float], now: list[float], delta: float = 0.05) -> str:
    return judge([accepted(before)], pace(now), HERE, "r1", delta).outcome


def test_an_unchanged_workload_is_no_alarm_and_a_slower_one_is() -> None:
    rng = random.Random(5)
    counts: dict[str, dict[str, int]] = {"same": {}, "slower": {}, "at the threshold": {}, "faster": {}}
    shifts = {"same": 0.0, "slower": math.log(1.15), "at the threshold": math.log(1.05), "faster": -0.2}
    n = 100
    for name, shift in shifts.items():
        for _ in range(n):
            found = outcome(drawn(rng, -1.0), drawn(rng, -1.0 + shift))
            counts[name][found] = counts[name].get(found, 0) + 1
    print(f"n = {n} each: {counts}")
    assert counts["same"].get("slower", 0) == 0
    assert counts["same"]["unchanged"] > 0.85 * n
    assert counts["slower"].get("slower", 0) > 0.99 * n
    # Exactly at the threshold is the worst case: a two-sided 99 % interval errs in 0.5 % to this side.
    assert counts["at the threshold"].get("slower", 0) <= 0.03 * n
    assert counts["faster"] == {"faster": n}


def test_noise_makes_it_inconclusive_and_never_a_regression() -> None:
    rng = random.Random(6)
    found = [outcome(drawn(rng, 0.0, 0.1, 6), drawn(rng, 0.0, 0.1, 6)) for _ in range(150)]
    assert found.count("slower") <= 1
    assert found.count("inconclusive") > 120


def test_the_change_has_an_interval_that_holds_the_truth() -> None:
    rng = random.Random(7)
    held = 0
    for _ in range(200):
        (change,) = judge([accepted(drawn(rng, 0.3))], pace(drawn(rng, 0.4)), HERE, "r1", 0.05).changes
        held += change.low <= math.exp(0.1) <= change.high
    assert 0.9 < held / 200 <= 0.99


@pytest.mark.parametrize(("device", "called"), [("cpu", 0.07), ("cuda", 0.022)])
def test_the_smallest_delta_holds_unchanged_and_a_smaller_one_never(device: str, called: float) -> None:
    delta = LEAST_ACCEPTED_DELTA[device]
    kind = HERE | {"device": device}

    def found(shift: float, delta: float) -> str:
        # Hardly any spread: a freedom of 1e16 and more, at which quantiles come out too small.
        quiet = [1e-6 * (number % 2) for number in range(12)]
        before = accept(ENTRY, pace(quiet), kind, "r1")
        return judge([before], pace([one + shift for one in quiet]), kind, "r1", delta).outcome

    assert found(0.0, delta) == "unchanged"
    assert found(0.0, 0.9 * delta if device == "cpu" else 0.8 * delta) == "inconclusive"
    assert found(math.log1p(called), delta) == "slower"
    assert found(math.log1p(0.95 * called), delta) == "inconclusive"


def test_the_worst_shape_speaks_and_none_is_hidden() -> None:
    rng = random.Random(8)
    before = accepted(drawn(rng, 0.0), drawn(rng, 1.0))
    found = judge([before], pace(drawn(rng, -0.3), drawn(rng, 1.2)), HERE, "r1", 0.05)
    assert found.outcome == "slower"
    assert [change.shape for change in found.changes] == [None, 1]


@pytest.mark.parametrize(
    ("machine", "reference", "word"),
    [
        ({"cpu": "Xeon", "torch": "2.13"}, "r1", "cpu EPYC → Xeon"),
        ({"cpu": "EPYC", "torch": "2.14"}, "r1", "torch 2.13 → 2.14"),
        (HERE, "r2", "reference has changed"),
    ],
)
def test_another_kind_of_machine_or_reference_is_not_comparable_however_slow(
    machine: dict[str, Any], reference: str, word: str
) -> None:
    rng = random.Random(9)
    found = judge([accepted(drawn(rng, 0.0))], pace(drawn(rng, 3.0)), machine, reference, 0.05)
    assert found.outcome == "not-comparable"
    assert word in found.reasons[0]
    assert found.changes == []


def test_nothing_accepted_and_a_new_shape_are_not_comparable() -> None:
    rng = random.Random(10)
    assert judge([], pace(drawn(rng, 0.0)), HERE, "r1", 0.05).outcome == "not-comparable"
    more = pace(drawn(rng, 0.0), drawn(rng, 0.0))
    assert judge([accepted(drawn(rng, 0.0))], more, HERE, "r1", 0.05).outcome == "not-comparable"


def test_a_disturbed_measurement_is_inconclusive_however_slow() -> None:
    rng = random.Random(11)
    now = pace(drawn(rng, 3.0), disturbed="the hypervisor kept a CPU")
    assert judge([accepted(drawn(rng, 0.0))], now, HERE, "r1", 0.05).outcome == "inconclusive"


def test_who_is_told_of_a_regression_is_told_what_was_noticed_meanwhile() -> None:
    rng = random.Random(14)
    now = pace(drawn(rng, 3.0))
    now.notes.append("the GPU could not be watched")
    found = judge([accepted(drawn(rng, 0.0))], now, HERE, "r1", 0.05)
    assert found.outcome == "slower"
    assert "the GPU could not be watched" in found.reasons


def test_each_kind_of_machine_keeps_its_own_entry(tmp_path: Path) -> None:
    rng = random.Random(12)
    path = tmp_path / "a.json"
    for kind in ("one", "two", "one"):
        file = AcceptedFile(path)
        file.put("softmax", accept(ENTRY, pace(drawn(rng, 0.0)), {"cpu": kind}, "r1"))
        file.write()
    assert [entry["machine"]["cpu"] for entry in AcceptedFile(path).entries("softmax")] == ["two", "one"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"schema": "trackside.accepted/2", "workloads": {}}',
        '{"schema": "trackside.accepted/1", "workloads": []}',
        '{"schema": "trackside.accepted/1", "workloads": {"softmax": [{}]}}',
        '{"schema": "trackside.accepted/1", "workloads": {"softmax": [{"machine": {}, "reference": "r", '
        '"shapes": [{"shape": null, "mean": "0", "standard_error": 0, "pairs": 6}]}]}}',
        '{"schema": "trackside.accepted/1", "workloads": {"softmax": [{"machine": {}, "reference": "r", '
        '"shapes": [{"shape": null, "mean": 0, "standard_error": 0, "pairs": 1}]}]}}',
    ],
)
def test_a_file_that_makes_no_sense_is_refused_and_not_taken_for_an_empty_one(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(TracksideError) as caught:
        AcceptedFile(path)
    assert caught.value.kind == "store"
    assert str(path) in caught.value.message
    assert "or delete it and run: trackside check --accept" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mean", -1.3),
        ("ratio", 0.2),
        ("low", 9.0),
        ("low", 0.5),
        ("high", 0.0),
        ("high", 9.0),
        ("ratio", -1.0),
        ("standard_error", 0.5),
        ("pairs", 60),
    ],
)
def test_a_file_whose_numbers_contradict_each_other_is_refused(
    tmp_path: Path, name: str, value: float
) -> None:
    """In a review one reads the ratio; the mean decides."""
    path = tmp_path / "a.json"
    file = AcceptedFile(path)
    file.put("softmax", accept(ENTRY, pace(drawn(random.Random(7), 0.0)), HERE, "r1"))
    file.write()
    AcceptedFile(path)
    document = json.loads(path.read_text())
    document["workloads"]["softmax"][0]["shapes"][0][name] = value
    path.write_text(json.dumps(document))
    with pytest.raises(TracksideError, match="contradicts itself"):
        AcceptedFile(path)


def test_a_shape_that_went_through_json_is_the_same_shape(tmp_path: Path) -> None:
    rng = random.Random(13)
    shaped = Pace([ShapePace([8, 16], drawn(rng, 0.0))], 1)
    before = json.loads(json.dumps(accept(ENTRY, shaped, HERE, "r1")))
    assert judge([before], shaped, HERE, "r1", 0.05).outcome == "unchanged"


def test_a_kind_of_machine_names_what_decides_its_speed() -> None:
    kind = machine_kind(facts(), "cpu", 3)
    assert {"cpu", "cpus", "threads", "torch", "python"} <= kind.keys()
    assert kind["threads"] == 3
    assert "gpu" not in kind
    # Of a GPU that is not there nothing is known, and that is said.
    assert machine_kind(facts(), "cuda:9", 3)["gpu"] is None


def test_processors_that_share_a_name_are_two_kinds_of_machine() -> None:
    """A cloud's "AMD EPYC" or "Xeon @ 2.20GHz" is this generation today and another tomorrow."""
    here = facts()
    kind = machine_kind(here, "cpu", 1)
    for other in (replace(here.cpu, isa=("avx", "avx2")), replace(here.cpu, caches=here.cpu.caches[:1])):
        elsewhere = machine_kind(replace(here, cpu=other), "cpu", 1)
        rng = random.Random(12)
        before = accept(ENTRY, pace(drawn(rng, 0.0)), kind, "r1")
        found = judge([before], pace(drawn(rng, 3.0)), elsewhere, "r1", 0.05)
        assert found.outcome == "not-comparable"
        assert "another kind of machine" in found.reasons[0]
