"""What is this machine's lack, and what is a workload's regression."""

from pathlib import Path

import pytest

from trackside.suite.child import Ended
from trackside.suite.evaluation import error_item
from trackside.suite.not_here import not_here
from trackside.suite.suite_file import Entry
from trackside.suite.watch import _correctness

GPU = any(Path("/dev").glob("nvidia[0-9]*"))


@pytest.mark.parametrize("kind", ["device", "missing-dependency", "unsupported", "workload", "internal"])
def test_on_a_machine_that_has_what_is_needed_every_error_is_one(kind: str) -> None:
    entry = Entry("a", "baseline", Path("b.py"), Path("c.py"))
    error = {"kind": kind, "message": "m", "remedy": "r"}
    assert error_item(entry, error, 0.0).status == "error"
    document = f'{{"error": {{"kind": "{kind}", "message": "m", "remedy": "r"}}}}'.encode()
    assert _correctness(Ended(2, document, ""), "cpu")["verdict"] == "error"


def test_a_gpu_that_is_not_there_is_the_machines_lack_and_a_lost_import_is_not() -> None:
    assert not_here("device", "cuda:77")
    assert not not_here("missing-dependency", "cuda:77")
    assert not not_here("workload", "cuda:77")
    assert not_here("device", "cuda") != GPU


def test_without_torch_nothing_can_be_timed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not_here("missing-dependency", "cpu")
