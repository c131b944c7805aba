"""Whether the machine is quiet, from recorded counters and a clock of the test's own."""

import os
from pathlib import Path

import pytest

from trackside.machine.facts import MachineFacts, facts
from trackside.store.lock import DeviceLock
from trackside.suite.quiet import Quiet, holder, lock_key


class Machine:
    """A /proc/stat whose counters the test moves."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 100.0
        self.ticks = [0] * 8
        (root / "proc").mkdir()
        self.after(1.0)

    def after(self, seconds: float, user: float = 0.0, steal: float = 0.0) -> None:
        """Let time pass, with so large a share of it spent."""
        self.now += seconds
        hundredths = 100 * seconds
        self.ticks[0] += round(user * hundredths)
        self.ticks[7] += round(steal * hundredths)
        self.ticks[3] += round((1 - user - steal) * hundredths)
        fields = " ".join(map(str, self.ticks))
        rows = [f"cpu{number} {fields} 0 0" for number in sorted(os.sched_getaffinity(0))]
        (self.root / "proc/stat").write_text("\n".join(["cpu  1 2 3", *rows, "intr 5"]) + "\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    locks = tmp_path / "locks"
    locks.mkdir(mode=0o700)
    monkeypatch.setattr("trackside.store.lock._lock_folder", lambda: locks)
    return Machine(tmp_path)


def test_it_takes_a_window_before_anything_is_called_quiet(machine: Machine) -> None:
    quiet = Quiet(machine.root, lambda: machine.now)
    machine.after(0.2)
    assert quiet.why_not("cpu") is not None
    machine.after(1.0)
    assert quiet.why_not("cpu") is None


@pytest.mark.parametrize(
    ("user", "steal", "word"),
    [(0.5, 0.0, "other work takes more than 20%"), (0.05, 0.1, "hypervisor takes more than 2%")],
)
def test_other_work_is_named_and_its_end_noticed(
    machine: Machine, user: float, steal: float, word: str
) -> None:
    quiet = Quiet(machine.root, lambda: machine.now)
    machine.after(2.0, user, steal)
    assert word in (quiet.why_not("cpu") or "")
    machine.after(0.5)
    assert word in (quiet.why_not("cpu") or "")
    machine.after(2.0)
    assert quiet.why_not("cpu") is None


def test_who_holds_the_device_is_named(machine: Machine) -> None:
    quiet = Quiet(machine.root, lambda: machine.now)
    machine.after(2.0)
    with DeviceLock("cpu", verb="compare"):
        assert "in use" in (quiet.why_not("cpu") or "")
    assert quiet.why_not("cpu") is None


def test_the_machine_is_read_once_for_a_device_that_is_asked_for_all_the_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def counted() -> MachineFacts:
        read.append(None)
        return facts()

    monkeypatch.setattr("trackside.suite.quiet.machine_facts", counted)
    lock_key.cache_clear()
    assert [holder("cuda:3") for _ in range(5)] == [None] * 5
    assert len(read) == 1
