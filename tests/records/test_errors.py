"""The error type: closed kinds, exit codes, the JSON form."""

import pickle

import pytest

from trackside.records.errors import ERROR_KINDS, TracksideError, encodable, printable

EXIT_CODES = {
    "usage": 2,
    "not-found": 2,
    "workload": 2,
    "missing-dependency": 2,
    "store": 2,
    "internal": 2,
    "busy": 2,
    "unsupported": 3,
    "device": 3,
    "timeout": 124,
    "interrupted": 130,
}


@pytest.mark.parametrize(("kind", "code"), EXIT_CODES.items())
def test_each_kind_has_its_exit_code(kind: str, code: int) -> None:
    assert TracksideError(kind, "m", "r").exit_code == code


def test_the_table_above_covers_every_kind() -> None:
    assert set(EXIT_CODES) == set(ERROR_KINDS)


def test_no_error_ends_with_the_code_of_a_failed_claim() -> None:
    assert 1 not in {TracksideError(kind, "m", "r").exit_code for kind in ERROR_KINDS}


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown error kind 'odd'"):
        TracksideError("odd", "m", "r")


def test_json_form_has_kind_message_and_remedy() -> None:
    assert TracksideError("busy", "m", "r").as_json() == {
        "error": {"kind": "busy", "message": "m", "remedy": "r"}
    }


def test_an_error_survives_the_way_between_processes() -> None:
    copy = pickle.loads(pickle.dumps(TracksideError("busy", "m", "r")))
    assert (copy.kind, copy.message, copy.remedy, str(copy)) == ("busy", "m", "r", "m")


def test_what_is_printed_has_neither_control_characters_nor_broken_encodings() -> None:
    assert printable("é\udcff\x1b[31m\n\tz") == "é\\udcff\\x1b[31m\n\tz"


def test_what_is_stored_has_no_broken_encodings_and_is_otherwise_as_it_was() -> None:
    assert encodable({"\udcff": ("é\x1b", ["\udcff", 1.5, None])}) == {
        "\\udcff": ["é\x1b", ["\\udcff", 1.5, None]]
    }
