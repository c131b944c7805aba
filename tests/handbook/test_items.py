"""The checklist as data: complete, consistent, and every item with something to do."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from trackside.handbook.items import FAMILIES, FOLDER, families, items, read_family

ITEM = """
title = "A family"
about = "What it is about."

[[item]]
id = "an-item"
title = "Do this"
why = "Because. It costs."
when = "Always."
check = "Look."
fix = "Change it."
do = ["sudo do-it"]
effect = "Faster."
source = "https://example.org/it"
seen = "2026-11-16"
workloads = ["training"]
needs = []
signals = ["cost"]
weight = 1
related = []
"""


def test_every_family_has_a_file_and_every_file_is_a_family() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(FAMILIES)
    assert [family.name for family in families()] == list(FAMILIES)


def test_there_are_more_than_175_items_and_no_family_is_thin() -> None:
    assert len(items()) >= 175
    assert min(len(family.items) for family in families()) >= 13


def test_related_items_exist_and_none_is_related_to_itself() -> None:
    for item in items().values():
        assert set(item.related) <= items().keys() - {item.id}, item.id


def test_no_two_items_have_one_title_or_one_reason() -> None:
    for text in ("title", "why", "fix"):
        twice = [t for t, n in Counter(getattr(item, text) for item in items().values()).items() if n > 1]
        assert not twice


def test_titles_are_imperatives_that_fit_a_line() -> None:
    for item in items().values():
        assert len(item.title) <= 90, item.id
        assert not item.title.endswith("."), item.id
        assert item.title[0].isupper(), item.id


def test_a_family_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "system.toml"
    path.write_text(ITEM)
    (item,) = read_family(path).items
    assert (item.id, item.family, item.do) == ("system.an-item", "system", ("sudo do-it",))
    assert replace(item, weight=1) == item


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('do = ["sudo do-it"]', "do = []", "names no command"),
        ('do = ["sudo do-it"]', 'do = [" "]', "names no command"),
        ('why = "Because. It costs."', 'why = ""', "why is empty"),
        ("weight = 1", "weight = 4", "weight is one of"),
        ('signals = ["cost"]', 'signals = ["costs"]', "signals has costs; there are"),
        ('source = "https://example.org/it"', 'source = "a book"', "no https address"),
        ('id = "an-item"', 'id = "An item"', "lower-case words"),
        ('when = "Always."\n', "", "keys missing or unknown: when"),
        ("weight = 1", 'weight = 1\nnote = "x"', "keys missing or unknown: note"),
    ],
)
def test_an_item_that_lacks_something_is_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "system.toml"
    assert ITEM.count(old) == 1
    path.write_text(ITEM.replace(old, new))
    with pytest.raises(ValueError, match=told):
        read_family(path)


def test_two_items_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "system.toml"
    path.write_text(ITEM + ITEM[ITEM.index("[[item]]") :])
    with pytest.raises(ValueError, match=r"two items are called system\.an-item"):
        read_family(path)
