"""A suite file: what it gives, and what is said of its errors."""

import os
from pathlib import Path

import orjson
import pytest
from tests.suite.projects import BASELINE, RIGHT, project

from trackside.records.errors import TracksideError
from trackside.suite.suite_file import Entry, find_suite, load_suite
from trackside.suite.toml_lines import line_of

SUITE = """\
# a comment = with an equals sign
[suite]
budget = 20
device = "cpu"

[workload.softmax]
baseline = "base.py"
candidate = ["new.py", "other.py"]
claim = "not-slower"
delta = 0.05

[workload.alone]
file = "new.py"
reference = "base.py"
"""


def refused(folder: Path, text: str) -> TracksideError:
    files = {"base": BASELINE, "new": RIGHT, "other": RIGHT}
    with pytest.raises(TracksideError) as caught:
        load_suite(project(folder, text, **files))
    assert caught.value.kind == "usage"
    return caught.value


def test_defaults_reach_every_workload_and_each_candidate_is_an_entry(tmp_path: Path) -> None:
    suite = load_suite(project(tmp_path, SUITE, base=BASELINE, new=RIGHT, other=RIGHT))
    first, second, alone = suite.entries
    assert [e.name for e in suite.entries] == ["softmax.new", "softmax.other", "alone"]
    assert (first.budget, first.claim, first.delta, first.mode) == (20.0, "not-slower", 0.05, "baseline")
    assert second.candidate == tmp_path / "other.py"
    assert (alone.mode, alone.reference, alone.threshold) == ("accepted", tmp_path / "base.py", 0.05)
    assert suite.accepted == tmp_path / "trackside.accepted.json"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("budget = 20", "budgte = 20", 3, ("`budgte`", "`budget`")),
        (
            'claim = "not-slower"',
            'claim = "slower"',
            9,
            ("workload.softmax.claim", '"faster" or "not-slower"'),
        ),
        ("delta = 0.05", "delta = 5", 10, ("workload.softmax.delta = 5", "0.02")),
        ("delta = 0.05", "delta = true", 10, ("workload.softmax.delta = True", "a number")),
        ("budget = 20", "budget = nan", 3, ("suite.budget", "a number")),
        ("budget = 20", "pairs = 2.5", 3, ("suite.pairs", "whole number")),
        ("budget = 20", "budget = 1", 3, ("suite.budget = 1", "5 to 86400")),
        ('device = "cpu"', 'device = "gpu"', 4, ("suite.device", "cuda:N")),
        ('baseline = "base.py"', 'baseline = "bose.py"', 7, ("bose.py", "suite's folder")),
        ('baseline = "base.py"', "baseline = 3", 7, ("workload.softmax.baseline = 3", "file")),
        ('candidate = ["new.py", "other.py"]', "candidate = []", 8, ("candidate = []",)),
        ('candidate = ["new.py", "other.py"]', "", 6, ("no `candidate`", "reference")),
        (
            'candidate = ["new.py", "other.py"]',
            'candidate = ["new.py", "new.py"]',
            8,
            ("softmax.new", "twice"),
        ),
        (
            "[workload.alone]",
            '[workload."softmax.new"]\nbaseline = "base.py"\ncandidate = "other.py"\n[workload.alone]',
            14,
            ("softmax.new", "twice"),
        ),
        ('reference = "base.py"', "", 12, ("no `reference`",)),
        ('reference = "base.py"', 'reference = "new.py"', 14, ("same file",)),
        ('reference = "base.py"', 'reference = "base.py"\nclaim = "faster"', 15, ("`claim`",)),
        ("delta = 0.05", "tolerance = 0.1", 10, ("`tolerance`", "baseline's file")),
        ("[workload.alone]", "[workload.softmax]", 12, ("valid TOML",)),
        ("[workload.alone]", '[workload."a b"]', 12, ("'a b'",)),
        ("[workload.alone]", "[worklood.alone]", 12, ("`worklood`", "`workload`")),
        ("delta = 0.05", "delta = ", 10, ("valid TOML",)),
        ("budget = 20", 'budget = "a\nb"', 3, ("valid TOML", "`suite.budget`")),
        ("delta = 0.05", "delta = 0.05\ndelta = 0.06", 11, ("valid TOML", "`workload.softmax.delta`")),
        ('reference = "base.py"', 'reference = ["base.py"', 14, ("`workload.alone.reference`",)),
        ("delta = 0.05", "delta 0.05", 10, ("valid TOML: ",)),
    ],
)
def test_an_error_names_the_line_and_the_key(
    tmp_path: Path, old: str, new: str, line: int, words: tuple[str, ...]
) -> None:
    assert old in SUITE
    error = refused(tmp_path, SUITE.replace(old, new, 1))
    assert error.message.startswith(f"trackside.toml:{line}: ")
    for word in words:
        assert word in f"{error.message} {error.remedy}"


@pytest.mark.parametrize(
    ("text", "word"),
    [("", "no workload"), ("workload = 3", "workload = 3"), ("[workload]\nx = 1", "workload.x = 1")],
)
def test_a_suite_without_workloads_is_refused(tmp_path: Path, text: str, word: str) -> None:
    assert word in refused(tmp_path, text).message


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (
            'reference = "base.py"',
            'reference = "base.py"\ndelta = 0.02',
            15,
            ("workload.alone.delta", "0.03"),
        ),
        ("budget = 20", "delta = 0.02", 3, ("suite.delta = 0.02", "[workload.alone]", "0.03")),
        ('device = "cpu"', 'device = "cuda"\ndelta = 0.005', 5, ("suite.delta = 0.005", "cuda", "0.01")),
    ],
)
def test_a_delta_that_no_accepted_record_can_tell_is_refused(
    tmp_path: Path, old: str, new: str, line: int, words: tuple[str, ...]
) -> None:
    error = refused(tmp_path, SUITE.replace(old, new))
    assert error.message.startswith(f"trackside.toml:{line}: ")
    for word in words:
        assert word in error.message + error.remedy


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_could_be_read_for_ever_is_refused_by_line(tmp_path: Path, kind: str) -> None:
    suite = project(tmp_path, SUITE, base=BASELINE, new=RIGHT)
    if kind == "pipe":
        os.mkfifo(tmp_path / "other.py")
    else:
        (tmp_path / "other.py").symlink_to("/dev/zero")
    with pytest.raises(TracksideError, match=r"trackside.toml:8: found other.py .*a pipe or a device"):
        load_suite(suite)


def test_a_delta_of_a_candidate_may_be_small(tmp_path: Path) -> None:
    text = SUITE.replace("delta = 0.05", "delta = 0.005")
    suite = load_suite(project(tmp_path, text, base=BASELINE, new=RIGHT, other=RIGHT))
    assert suite.entries[0].delta == 0.005


def test_bytes_that_are_no_text_are_named_by_line(tmp_path: Path) -> None:
    path = project(tmp_path, SUITE, base=BASELINE, new=RIGHT, other=RIGHT)
    path.write_bytes(b"[suite]\nbudget = 20 # \xff\n")
    with pytest.raises(TracksideError, match=r"trackside\.toml:2: .*0xff"):
        load_suite(path)


def test_a_mark_of_byte_order_is_no_error(tmp_path: Path) -> None:
    path = project(tmp_path, SUITE, base=BASELINE, new=RIGHT, other=RIGHT)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(load_suite(path).entries) == 3


def test_the_nearest_suite_above_is_found_and_none_is_an_error(tmp_path: Path) -> None:
    path = project(tmp_path, SUITE)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_suite(below) == path
    path.unlink()
    with pytest.raises(TracksideError) as caught:
        find_suite(below)
    assert caught.value.kind == "not-found"


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a", "x"), 2),
        (("a", "b", "x"), 8),
        (("a", "text"), 3),
        (("a", "b", "late"), 9),
        (("a", "b c", "y"), 11),
        (("a", "inline", "deep"), 12),
        (("dotted", "key"), 14),
        (("nowhere",), None),
    ],
)
def test_the_line_of_a_key_is_found_around_text_quotes_and_dots(
    path: tuple[str, ...], line: int | None
) -> None:
    source = (
        "[a]\nx = 1\ntext = '''\n[a.b]\nlate = 2\n'''\n"
        '[a.b]   # x = 3\nx = 4\nlate = 5\n[a."b c"]\ny = 1\n[a.inline]\n[dotted]\nkey.inner = 1\n'
    )
    assert line_of(source, path) == line


def test_an_entry_comes_to_its_child_as_it_is() -> None:
    for reference in (None, Path("odd näme.py")):
        entry = Entry("a", "accepted", Path("x.py"), Path("y.py"), reference, device="cuda:1", pairs=3)
        assert Entry.from_dict(orjson.loads(orjson.dumps(entry.to_dict()))) == entry
