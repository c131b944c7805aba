"""The base of records: strict when written, lenient when read, JSON values only."""

import json
import os
from typing import Any, Literal

import pytest
from pydantic import Field, ValidationError

from trackside.records.base import Part, Record
from trackside.records.errors import TracksideError


class Lap(Part):
    seconds: float


class LapRecord(Record):
    schema_: Literal["trackside.lap/1"] = Field("trackside.lap/1", alias="schema")
    lap: Lap


def test_the_schema_appears_under_its_public_name() -> None:
    written = LapRecord(lap=Lap(seconds=1.5)).to_dict()
    assert written == {"schema": "trackside.lap/1", "run_id": None, "status": "done", "lap": {"seconds": 1.5}}


def test_a_record_reads_back_equal() -> None:
    record = LapRecord(run_id="l-20260101-000000-0000", lap=Lap(seconds=1.5))
    assert LapRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record


def test_unknown_fields_are_refused_when_written() -> None:
    with pytest.raises(ValidationError):
        LapRecord(lap=Lap(seconds=1.0), lapp=2)
    with pytest.raises(ValidationError):
        Lap(seconds=1.0, secnods=2.0)


def test_fields_of_a_later_release_are_passed_over_when_read() -> None:
    later = {"schema": "trackside.lap/1", "lap": {"seconds": 1.0, "tyres": "soft"}, "weather": "dry"}
    assert LapRecord.from_dict(later).lap.seconds == 1.0


def test_another_schema_is_refused_with_both_names() -> None:
    with pytest.raises(TracksideError, match=r"'trackside.lap/2', and 'trackside.lap/1' is needed") as caught:
        LapRecord.from_dict({"schema": "trackside.lap/2"})
    assert caught.value.kind == "store"


def test_an_impossible_value_is_refused_with_its_place() -> None:
    with pytest.raises(TracksideError, match=r"lap\.seconds"):
        LapRecord.from_dict({"schema": "trackside.lap/1", "lap": {"seconds": "quick"}})


def test_an_undefined_number_is_written_as_null() -> None:
    assert LapRecord(lap=Lap(seconds=float("nan"))).to_dict()["lap"] == {"seconds": None}


def test_text_that_is_not_valid_unicode_is_written_with_escapes() -> None:
    class Named(Record):
        schema_: Literal["trackside.named/1"] = Field("trackside.named/1", alias="schema")
        name: str
        found: dict[str, Any]

    odd = os.fsdecode(b"caf\xe9")
    record = Named(name=odd, found={"list": [odd, {"n": float("nan"), "tab": "a\tb\x1b"}], "pair": (odd, 1)})
    written = record.to_dict()
    assert written["name"] == "caf\\udce9"
    assert written["found"] == {
        "list": ["caf\\udce9", {"n": None, "tab": "a\tb\x1b"}],
        "pair": ["caf\\udce9", 1],
    }
    assert Named.from_dict(written).to_dict() == written
    json.dumps(Named(name="", found={odd: 1}).to_dict(), ensure_ascii=False).encode()
