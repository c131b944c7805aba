"""Items and families by what people type."""

from __future__ import annotations

import pytest

from trackside.handbook.items import families, items
from trackside.handbook.lookup import find_family, find_item
from trackside.records.errors import TracksideError


def test_every_item_is_found_by_its_id() -> None:
    assert all(find_item(id_).id == id_ for id_ in items())


def test_a_unique_beginning_is_enough() -> None:
    assert find_item("kv-cache.size-per").id == "kv-cache.size-per-token"


def test_a_bare_name_that_only_one_family_has_is_enough() -> None:
    assert find_item("size-per-token").id == "kv-cache.size-per-token"
    assert find_item("Size-Per-Token").id == "kv-cache.size-per-token"


def test_an_id_that_begins_others_is_itself() -> None:
    longer = [id_ for id_ in items() if id_.startswith("kv-cache.fp8")]
    assert len(longer) > 1
    assert find_item("kv-cache.fp8").id == "kv-cache.fp8"


@pytest.mark.parametrize(
    ("reference", "told", "remedy"),
    [
        ("kv-cache.fp9", "nearest: kv-cache.fp8", "trackside handbook show kv-cache.fp8"),
        ("memory.size-per-tokens", "kv-cache.size-per-token", "trackside handbook show"),
        ("kv-cache.", "items that begin with 'kv-cache.'", "give more of the id"),
        ("kv-cache", "which is a family", "trackside handbook list --family kv-cache"),
        ("", "found no item ''", "trackside handbook search WORDS"),
        ("qqqqqqqq", "found no item 'qqqqqqqq'", "trackside handbook search WORDS"),
    ],
)
def test_what_does_not_fit_is_answered_with_the_nearest(reference: str, told: str, remedy: str) -> None:
    with pytest.raises(TracksideError) as caught:
        find_item(reference)
    assert caught.value.kind == "not-found"
    assert told in caught.value.message
    assert "needed" in caught.value.message
    assert caught.value.remedy.startswith(remedy)


def test_a_name_that_two_families_have_is_refused_with_both() -> None:
    names = [id_.partition(".")[2] for id_ in items()]
    name = next(name for name in names if names.count(name) == 2)
    with pytest.raises(TracksideError) as caught:
        find_item(name)
    assert all(id_ in caught.value.message for id_ in items() if id_.partition(".")[2] == name)


def test_families_are_found_by_name_only() -> None:
    assert all(find_family(family.name) is family for family in families())


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("kvcache", "trackside handbook list --family kv-cache"),
        ("Storage", "trackside handbook list --family storage"),
        ("zzzz", "trackside handbook list"),
    ],
)
def test_an_unknown_family_is_answered_with_the_nearest(name: str, remedy: str) -> None:
    with pytest.raises(TracksideError) as caught:
        find_family(name)
    assert (caught.value.kind, caught.value.remedy) == ("not-found", remedy)
    assert f"found no family {name!r}; needed: one of the {len(families())}" in caught.value.message
    # Nothing is near: all of them, so that the next try is right.
    assert name != "zzzz" or all(family.name in caught.value.message for family in families())
