"""Workers as a real template forks them, seen from outside."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from trackside.workload.fleet import Process


@pytest.fixture
def workers(crewed: Any) -> Iterator[list[Process]]:
    made = [crewed.spawn(name, min(os.sched_getaffinity(0))) for name in ("one", "other")]
    yield made
    for worker in made:
        worker.kill()


def test_a_worker_leads_a_process_group_of_its_own(workers: list[Process]) -> None:
    assert [os.getpgid(worker.pid) for worker in workers] == [worker.pid for worker in workers]


def test_a_worker_stays_in_the_supervisor_s_session_which_is_not_the_judge_s(
    workers: list[Process], crewed: Any
) -> None:
    supervisor = crewed.fleet._process.pid
    assert {os.getsid(worker.pid) for worker in workers} == {os.getsid(supervisor)} != {os.getsid(0)}
