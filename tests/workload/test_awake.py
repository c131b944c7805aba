"""A CPU kept busy at the lowest priority: real processes under a real supervisor."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.processes import alive, until

from trackside.workload.fleet import Fleet
from trackside.workload.supervisor import descendants

CPU = max(os.sched_getaffinity(0))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Without templates: nothing here needs torch."""
    made = Fleet(tmp_path / "fleet", threads=1, memory_limit=1 << 30)
    yield made
    made.close()


def idle(pid: int) -> bool:
    try:
        return os.sched_getscheduler(pid) == os.SCHED_IDLE
    except ProcessLookupError:
        return False


def spinners(fleet: Fleet, count: int = 1) -> list[int]:
    """Processes that keep a CPU awake, once so many have taken their place."""

    def found() -> list[int]:
        return [pid for pid in descendants(fleet._process.pid) if idle(pid)]

    until(lambda: len(found()) >= count, f"{count} at idle priority")
    return found()


def used(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def test_one_process_at_idle_priority_spins_on_the_cpu_named_until_the_block_ends(fleet: Fleet) -> None:
    with fleet.awake([CPU]):
        (pid,) = spinners(fleet)
        assert descendants(fleet._process.pid) == [pid]
        assert os.sched_getaffinity(pid) == {CPU}
        before = used(pid)
        until(lambda: used(pid) > before + 0.2, "CPU time of its own")
    until(lambda: not alive(pid), "its end")
    until(lambda: descendants(fleet._process.pid) == [], "its reaping")


def test_each_cpu_named_gets_its_own_process_and_no_cpu_gets_none(fleet: Fleet) -> None:
    with fleet.awake([]):
        assert descendants(fleet._process.pid) == []
    cpus = sorted(os.sched_getaffinity(0))
    with fleet.awake(cpus):
        pids = spinners(fleet, len(cpus))
        assert sorted(tuple(os.sched_getaffinity(pid)) for pid in pids) == [(cpu,) for cpu in cpus]


def test_it_is_gone_after_a_block_that_fails(fleet: Fleet) -> None:
    seen: list[int] = []

    def fail() -> None:
        with fleet.awake([CPU]):
            seen.extend(spinners(fleet))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    until(lambda: not alive(seen[0]), "its end")


def test_it_is_no_stranger(fleet: Fleet) -> None:
    with fleet.awake([CPU]):
        assert len(spinners(fleet)) == 1
        assert fleet.strangers([]) == {}


def test_closing_the_fleet_ends_it(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "fleet", threads=1, memory_limit=1 << 30)
    with fleet.awake([CPU]):
        (pid,) = spinners(fleet)
        assert fleet.close() >= 1
        assert not alive(pid)


def test_it_dies_with_a_supervisor_that_was_killed(fleet: Fleet) -> None:
    with fleet.awake([CPU]):
        (pid,) = spinners(fleet)
        os.kill(fleet._process.pid, signal.SIGKILL)
        until(lambda: not alive(pid), "its end")
        assert fleet._process.wait(5) == -signal.SIGKILL


def test_a_worker_on_the_same_cpu_hardly_notices_it(crewed: Any) -> None:
    """Shares of the CPU time that both got: what the rest of the machine takes does not count."""
    worker = crewed.spawn("beside", CPU)
    try:
        with crewed.fleet.awake([CPU]):
            (pid,) = spinners(crewed.fleet)
            got = worker.ask("spin", 60, beside=pid, seconds=1.0)
            assert got["mine"] > 0.9 * (got["mine"] + got["other"])
            # It does want the CPU: as soon as the worker sleeps, it runs.
            before = used(pid)
            until(lambda: used(pid) > before + 0.2, "CPU time while the worker sleeps")
    finally:
        worker.kill()
