"""What a run's files tell, whatever is in them: nothing in a file may stop a list."""

import contextlib
import random
from pathlib import Path

import pytest

from trackside.records.errors import TracksideError
from trackside.store.runs import RunStore

START_FIELDS = ("id", "verb", "started_ns", "order_ns", "pid", "process", "host", "argv")
RECORD_FIELDS = (
    "schema",
    "status",
    "verdict",
    "certified",
    "command",
    "baseline",
    "candidate",
    "findings",
    "facts",
    "surroundings",
    "gpu_states",
    "ceilings",
)
ODD_VALUES = (
    *("true", "null", "-1", "0", "3.7", "1e30", "-1e300", "123456789012345678", "[]", "{}", "[[1]]"),
    *('""', '"x"', '"1"', '"\\u0000\\u001b[31m"', '{"a": {}}', '[{"item": 1}]', '[{"name": "x"}]', "[7]"),
    *('{"path": "a/b.py"}', '{"path": "x", "format": []}', '["python", {}]', '{"gpus": [3]}'),
    *(f'"trackside.{name}"' for name in ("compare/1", "compare/2", "doctor/1", "machine/1", "ceilings/1")),
    *('"trackside.profile/1"', '"trackside.doctor/0"', '"trackside.x/999999999"', '"running"', '"failed"'),
)
BROKEN = (b"", b"{", b"[]", b"null", b"\x00", b"\xff\xfe", b"1e400", b'"\\ud800"', b"[" * 5000)


def test_no_file_of_a_run_can_stop_a_list(tmp_path: Path) -> None:
    chance = random.Random(20261118)

    def document(fields: tuple[str, ...]) -> bytes:
        if chance.random() < 0.1:
            return chance.choice(BROKEN)
        pairs = [f'"{name}": {chance.choice(ODD_VALUES)}' for name in fields if chance.random() < 0.7]
        return f"{{{', '.join(pairs)}}}".encode()

    store = RunStore(tmp_path)
    number = 500
    for run in range(number):
        folder = store.runs / f"c-20261118-{run // 60:04d}{run % 60:02d}-{run:04x}"
        folder.mkdir(parents=True)
        if chance.random() < 0.9:
            (folder / "run.json").write_bytes(document(START_FIELDS))
        if chance.random() < 0.9:
            (folder / "record.json").write_bytes(document(RECORD_FIELDS))
    first, again = store.list(), RunStore(tmp_path).list()
    assert first == again
    assert len(first) == number
    assert {run.state for run in first} >= {"done", "failed", "died", "unreadable", "newer"}
    assert store.remarks == []
    for run in first:
        with contextlib.suppress(TracksideError):
            store.load(run.id)


@pytest.mark.parametrize(
    ("command", "about"),
    [
        (["python", "train.py", "--steps", "8"], "train.py --steps 8"),
        # As a job has it.
        (["python", "/home/someone/projects/language-model/train.py", "8"], "language-model/train.py 8"),
        (["python", "/train.py"], "train.py"),
        (["python", "-m", "package.train"], "-m package.train"),
        (["python"], "python"),
        (["python", "/home/someone/projects/rank/fit.py", "--steps", "300"], "rank/fit.py --steps 300"),
        (["python", "t.py", "--name", "x" * 80], "t.py --name " + "x" * 47 + "…"),
    ],
)
def test_a_profile_is_about_its_file_wherever_that_lies(
    tmp_path: Path, command: list[str], about: str
) -> None:
    store = RunStore(tmp_path)
    run = store.new_run("profile")
    store.write_record(run, {"schema": "trackside.profile/1", "command": command})
    assert store.list()[0].about == about
