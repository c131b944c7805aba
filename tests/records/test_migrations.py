"""Records of every version that was ever stored are read; a newer version is refused by name."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from trackside.cli.runs import _renderer
from trackside.records import (
    ceilings,
    check,
    compare,
    doctor,
    machine,
    profile,
    profile_diff,
    selfcheck,
    verify,
)
from trackside.records.base import Record
from trackside.records.errors import TracksideError
from trackside.records.migrations import CURRENT, MIGRATIONS, migrated, schema_of

# Made by the real verbs, of this release (-1) and of before names were settled (-0). They must stay readable.
STORED = Path(__file__).parents[1] / "store" / "records"
MODELS: dict[str, type[Record]] = {
    "ceilings": ceilings.CeilingsRecord,
    "check": check.CheckRecord,
    "compare": compare.CompareRecord,
    "doctor": doctor.DoctorRecord,
    "machine": machine.MachineRecord,
    "profile": profile.ProfileRecord,
    "profile-diff": profile_diff.ProfileDiff,
    "selfcheck": selfcheck.SelfcheckRecord,
    "verify": verify.VerifyRecord,
}


def stored(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((STORED / f"{name}.json").read_text())
    return record


@pytest.mark.parametrize("name", sorted(path.stem for path in STORED.glob("*.json")))
def test_a_stored_record_of_any_version_is_read_and_shown(name: str) -> None:
    record = stored(name)
    kind = name.rpartition("-")[0]
    MODELS[kind].from_dict(record)
    now = migrated(record)
    assert schema_of(now) == (kind, CURRENT[kind])
    output = StringIO()
    _renderer(now["schema"]).render(now, Console(file=output, width=100))
    assert output.getvalue().strip()


def test_every_version_that_was_stored_has_a_record_here() -> None:
    written = {f"{name}-{version}" for name, version in CURRENT.items()} - {"profile-diff-1", "verify-1"}
    older = {f"{name}-{version}" for name, version in MIGRATIONS}
    assert {path.stem for path in STORED.glob("*.json")} == written | older


def test_the_table_of_versions_is_that_of_the_models() -> None:
    assert CURRENT.keys() == MODELS.keys()
    for name, model in MODELS.items():
        assert model.model_fields["schema_"].default == f"trackside.{name}/{CURRENT[name]}"
    loaded = {cls for cls in _subclasses(Record) if cls.__module__.startswith("trackside.records.")}
    assert loaded == set(MODELS.values()), "put it into CURRENT, MODELS and tests/store/records"


def _subclasses(cls: type[Record]) -> set[type[Record]]:
    return {inner for one in cls.__subclasses__() for inner in {one} | _subclasses(one)}


def test_records_of_today_are_left_as_they_are() -> None:
    for path in STORED.glob("*-1.json"):
        record = json.loads(path.read_text())
        assert migrated(record) == record


def test_what_a_doctor_of_before_0_1_found_is_under_the_names_of_today() -> None:
    old = stored("doctor-0")
    new = migrated(old)
    assert [check["id"] for check in new["checks"]] == [finding["item"] for finding in old["findings"]]
    assert "findings" not in new
    assert "item" not in new["checks"][0]


def test_a_machine_of_before_0_1_has_its_facts_at_the_top() -> None:
    old, new = stored("machine-0"), migrated(stored("machine-0"))
    assert (new["cpu"], new["disks"]) == (old["facts"]["cpu"], old["surroundings"]["disks"])
    gpu = {"index": 0, "name": "H200"}
    with_gpu = old | {"facts": old["facts"] | {"gpus": [gpu]}, "gpu_states": [{"index": 0, "watts": 300}]}
    assert migrated(with_gpu)["gpus"] == [gpu | {"state": {"index": 0, "watts": 300}}]


def test_steps_follow_each_other_to_the_version_of_today() -> None:
    steps = {
        ("lap", 1): lambda record: {"seconds": record["ms"] / 1000},
        ("lap", 2): lambda record: record | {"laps": [record["seconds"]]},
    }
    new = migrated({"schema": "trackside.lap/1", "ms": 1500}, steps, {"lap": 3})
    assert new == {"schema": "trackside.lap/3", "seconds": 1.5, "laps": [1.5]}
    assert migrated(new, steps, {"lap": 3}) == new


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(TracksideError, match="newer Trackside wrote") as caught:
        migrated({"schema": "trackside.compare/2"})
    assert "trackside.compare/2" in caught.value.message
    assert "pip install --upgrade trackside" in caught.value.remedy
    with pytest.raises(TracksideError, match="newer Trackside wrote"):
        compare.CompareRecord.from_dict({"schema": "trackside.compare/2"})


def test_a_version_without_a_way_to_today_is_an_error() -> None:
    with pytest.raises(TracksideError, match="there is no way"):
        migrated({"schema": "trackside.lap/1"}, {}, {"lap": 2})


@pytest.mark.parametrize(
    "record",
    [
        {"schema": "trackside.doctor/1", "findings": [{}]},
        {"schema": "trackside.doctor/1", "findings": 3},
        {"schema": "trackside.machine/1", "facts": {}},
        {"schema": "trackside.ceilings/1", "ceilings": [{}]},
    ],
)
def test_an_old_record_that_is_not_whole_is_a_store_error(record: dict[str, Any]) -> None:
    with pytest.raises(TracksideError, match="not a whole") as caught:
        migrated(record)
    assert caught.value.kind == "store"


@pytest.mark.parametrize("schema", [None, 3, "", "trackside.compare", "other.compare/9", "trackside.tune/7"])
def test_what_is_nobodys_schema_is_left_alone(schema: object) -> None:
    assert migrated({"schema": schema, "a": 1}) == {"schema": schema, "a": 1}
