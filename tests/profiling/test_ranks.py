"""Ranks under torchrun: one run in the store and one report, whatever becomes of a rank."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.processes import holding_process, until
from tests.profiling.torchrun import TRAINING, Torchrun

from trackside.profiling.captured import Captured
from trackside.profiling.rank_clock import RankClock
from trackside.profiling.rank_times import RankSeen, lag, rank_seen, side_by_side
from trackside.profiling.ranks import Meeting, Rank, rank_here, ranks_named
from trackside.records.profile import RankTimes, Trust
from trackside.store.runs import RunStore

ENVIRONMENT = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_a/none_b/attempt_0/1/error.json",
}
OTHER = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_a/none_b/attempt_0/0/x",
}


# -- which rank this is ------------------------------------------------------------------------------


def test_ranks_of_one_run_derive_the_same_key_and_those_of_another_do_not() -> None:
    one, other = rank_here(ENVIRONMENT), rank_here(ENVIRONMENT | OTHER)
    assert one is not None
    assert other is not None
    assert (one.number, other.number, one.world) == (1, 0, 2)
    assert one.key == other.key
    for changed in (
        {"TORCHELASTIC_RUN_ID": "x"},
        {"MASTER_PORT": "29501"},
        {"TORCHELASTIC_RESTART_COUNT": "1"},
        # The same names a minute later: torchrun's temporary folder is another.
        {"TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_c/none_d/attempt_0/1/error.json"},
    ):
        found = rank_here(ENVIRONMENT | changed)
        assert found is not None
        assert found.key != one.key, changed


def test_ranks_on_several_machines_derive_the_same_key_whatever_their_folders_are_called() -> None:
    spread = ENVIRONMENT | {"WORLD_SIZE": "4", "MASTER_ADDR": "node-0"}
    here, there = (
        rank_here(spread),
        rank_here(spread | OTHER | {"TORCHELASTIC_ERROR_FILE": "/tmp/elsewhere/0/x"}),
    )
    assert here is not None
    assert there is not None
    assert here.key == there.key
    assert here.local_world == 2


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {name: value for name, value in ENVIRONMENT.items() if name != "RANK"},
        {name: value for name, value in ENVIRONMENT.items() if name != "TORCHELASTIC_RUN_ID"},
        ENVIRONMENT | {"WORLD_SIZE": "1", "RANK": "0"},
        ENVIRONMENT | {"RANK": "2"},
        ENVIRONMENT | {"RANK": "first"},
        ENVIRONMENT | {"LOCAL_WORLD_SIZE": "0"},
        ENVIRONMENT | {"LOCAL_WORLD_SIZE": "-2"},
        ENVIRONMENT | {"LOCAL_WORLD_SIZE": "3"},
    ],
)
def test_without_several_ranks_of_torchrun_there_is_none(environment: dict[str, str]) -> None:
    assert rank_here(environment) is None


def test_a_name_of_a_run_that_is_no_text_is_a_name() -> None:
    one = rank_here(ENVIRONMENT | {"TORCHELASTIC_RUN_ID": os.fsdecode(b"\xff")})
    other = rank_here(ENVIRONMENT | {"TORCHELASTIC_RUN_ID": os.fsdecode(b"\xfe")})
    assert one is not None
    assert other is not None
    assert one.key != other.key


def test_ranks_are_named_in_few_words() -> None:
    assert ranks_named([3]) == "rank 3"
    assert ranks_named([7, 1, 4, 5, 6]) == "ranks 1, 4-7"


# -- where they meet ---------------------------------------------------------------------------------


def rank(number: int, world: int = 2, local_world: int | None = None, key: str = "k") -> Rank:
    return Rank(number, world, local_world or world, key)


def joined(root: Path, one: Rank, clock: Callable[[], float] = time.monotonic) -> Meeting:
    meeting = Meeting(root, one, clock)
    meeting.join(RunStore(root))
    return meeting


def seen(number: int = 1, host: str = "here", **more: Any) -> RankSeen:
    return rank_seen(Captured(), number, host, None, "/").model_copy(update=more)


def gone(root: Path, number: int) -> None:
    """A rank that registers and ends at once, without a part."""
    code = (
        "import sys; from pathlib import Path; from trackside.profiling.ranks import Meeting, Rank; "
        "from trackside.store.runs import RunStore; root = Path(sys.argv[1]); "
        "Meeting(root, Rank(int(sys.argv[2]), 2, 2, 'k')).join(RunStore(root))"
    )
    subprocess.run([sys.executable, "-c", code, str(root), str(number)], check=True)


def test_what_a_rank_leaves_the_first_gathers_and_nothing_stays(tmp_path: Path) -> None:
    first, second = joined(tmp_path, rank(0)), joined(tmp_path, rank(1))
    assert second.leave(seen(1, "there").model_dump(mode="json", by_alias=True))
    said: list[str] = []
    (found,) = first.gather(lambda began: began + 60, said.append)
    assert found.part is not None
    assert found.part["times"]["host"] == "there"
    assert said == []
    first.close()
    assert not any((tmp_path / "ranks").iterdir())


def test_one_that_was_killed_is_not_waited_for_and_its_capture_is_named(tmp_path: Path) -> None:
    first = joined(tmp_path, rank(0))
    gone(tmp_path, 1)
    (found,) = first.gather(lambda began: began + 60, lambda text: None, sleep=_never)
    assert (found.came, found.part, found.alive) == (True, None, False)
    assert found.capture is not None
    assert found.capture.is_dir()


def _never(seconds: float) -> None:
    raise AssertionError("it waited")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_one_that_runs_on_is_waited_for_as_long_as_patience_lasts_and_it_is_said(tmp_path: Path) -> None:
    clock = Clock()
    first = joined(tmp_path, rank(0), clock)
    joined(tmp_path, rank(1))
    said: list[str] = []
    (found,) = first.gather(lambda began: began + 30, said.append, clock.sleep)
    assert clock.now == pytest.approx(1030, abs=0.2)
    assert (found.came, found.alive) == (True, True)
    assert said == ["waiting for what rank 1 saw, 29 s at most"]


def test_one_that_never_registers_is_waited_for_only_as_long_as_ranks_take_to_start(tmp_path: Path) -> None:
    clock = Clock()
    first = joined(tmp_path, rank(0), clock)
    (found,) = first.gather(lambda began: began + 300, lambda text: None, clock.sleep)
    assert clock.now == pytest.approx(1010, abs=0.2)
    assert not found.came


def test_what_an_earlier_run_of_the_same_name_left_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    gone(tmp_path, 1)
    left = tmp_path / "ranks" / "k" / "rank-1"
    (left / "part.json").write_text(json.dumps({"old": True}))
    here = json.loads((left / "here.json").read_text())
    (left / "here.json").write_text(json.dumps(here | {"started_s": time.time() - 3600}))
    first = joined(tmp_path, rank(0))
    clock = Clock()
    (found,) = first.gather(lambda began: clock() + 0, lambda text: None, clock.sleep)
    assert not found.came


def test_a_rank_replaces_what_an_earlier_one_of_its_number_left(tmp_path: Path) -> None:
    gone(tmp_path, 1)
    (tmp_path / "ranks" / "k" / "rank-1" / "part.json").write_text("{}")
    joined(tmp_path, rank(1))
    assert not (tmp_path / "ranks" / "k" / "rank-1" / "part.json").exists()


def test_the_first_rank_takes_away_what_dead_runs_left_and_leaves_live_ones_alone(tmp_path: Path) -> None:
    gone(tmp_path, 1)
    here = tmp_path / "ranks" / "k" / "rank-1" / "here.json"
    here.write_text(json.dumps(json.loads(here.read_text()) | {"started_s": time.time() - 3600}))
    joined(tmp_path, rank(1, key="live"))
    joined(tmp_path, rank(0, key="new"))
    assert sorted(path.name for path in (tmp_path / "ranks").iterdir()) == ["live", "new"]


def test_where_the_first_rank_is_gone_a_part_does_not_stay_for_ever(tmp_path: Path) -> None:
    second = joined(tmp_path, rank(1))
    assert not second.leave(seen().model_dump(mode="json", by_alias=True))
    assert not any((tmp_path / "ranks").iterdir())


# -- side by side ------------------------------------------------------------------------------------


def spent(*steps: tuple[float, ...]) -> list[RankSeen]:
    """Ranks of a step of ten milliseconds that spend so much of each step in collectives."""
    return [
        RankSeen(
            times=times(number, 10 - sorted(own)[len(own) // 2], sorted(own)[len(own) // 2]),
            communication_ms=list(own),
        )
        for number, own in enumerate(steps)
    ]


def times(number: int, work: float, communication: float, host: str = "here") -> RankTimes:
    parts = {"compute": work, "communication": communication, "copy": 0, "host": 0, "idle": 0}
    return RankTimes.model_validate(
        {
            "rank": number,
            "host": host,
            "device": "cpu",
            "step_ms": work + communication,
            "spread": 0.0,
            "steps": 10,
            "breakdown_ms": parts,
            "program": {"exit_code": 0, "signal": None, "seconds": 1.0},
        }
    )


def meet(tmp_path: Path, own: RankSeen, *others: RankSeen, world: int | None = None, local: int = 0) -> Any:
    count = world or len(others) + 1
    first = joined(tmp_path, rank(0, count, local))
    for one in others:
        number = one.times.rank
        joined(tmp_path, rank(number, count, local)).leave(one.model_dump(mode="json", by_alias=True))
    clock = Clock()
    awaited = first.gather(lambda began: clock() + 0, lambda text: None, clock.sleep)
    return side_by_side(first.rank, own, awaited, "/")


def test_waiting_is_what_a_rank_spends_in_collectives_beyond_the_one_that_spends_least(
    tmp_path: Path,
) -> None:
    found = meet(tmp_path, *spent((6,) * 10, (1,) * 10, (5,) * 10))
    assert [one.waiting_ms for one in found.times] == [5.0, 0.0, 4.0]
    behind = lag(found)
    assert behind is not None
    assert behind.late == [1]
    assert (behind.late_work_ms, behind.others_work_ms) == (9.0, 4.5)
    assert (behind.waiting_ms, behind.mean_waiting_ms) == (4.5, 3.0)
    assert (behind.in_steps, behind.of_steps) == (10, 10)
    assert "rank 0 waits for rank 1" in [one.what for one in found.trust]


def behind_by(tmp_path: Path, late: dict[str, float], other: dict[str, float]) -> Any:
    """Of steps of ten milliseconds the first rank waits five; what is known of the cores of both."""
    first, second = spent((6,) * 10, (1,) * 10)
    told = [one.times.model_copy(update=core) for one, core in ((first, other), (second, late))]
    return meet(tmp_path, *(RankSeen(times=one, communication_ms=[6 - 5 * one.rank] * 10) for one in told))


def test_a_rank_whose_core_others_had_is_not_blamed_for_it(tmp_path: Path) -> None:
    found = behind_by(tmp_path, {"cpu_ms": 4.0, "delayed_ms": 4.5}, {"cpu_ms": 3.9, "delayed_ms": 0.0})
    behind = lag(found)
    assert behind is not None
    assert behind.by_itself == pytest.approx(0.1)
    assert [one.what for one in found.trust] == ["rank 1 came last"]


def test_a_rank_that_computes_more_is_late_by_itself_on_a_busy_machine_too(tmp_path: Path) -> None:
    behind = lag(behind_by(tmp_path, {"cpu_ms": 4.0, "delayed_ms": 4.5}, {"cpu_ms": 2.0, "delayed_ms": 0.5}))
    assert behind is not None
    assert behind.by_itself == 1.0


def test_a_rank_that_waits_for_something_of_its_own_is_late_by_itself(tmp_path: Path) -> None:
    behind = lag(behind_by(tmp_path, {"cpu_ms": 4.0, "delayed_ms": 0.2}, {"cpu_ms": 4.0, "delayed_ms": 0.2}))
    assert behind is not None
    assert behind.by_itself == 1.0


def test_one_hiccup_does_not_hide_a_rank_that_is_always_late(tmp_path: Path) -> None:
    behind = lag(meet(tmp_path, *spent((0.5, *(6,) * 9), (9, *(1,) * 9))))
    assert behind is not None
    assert (behind.late, behind.in_steps) == ([1], 9)


def test_two_late_ranks_are_both_named(tmp_path: Path) -> None:
    late = (1.1, 1) * 5, (1, 1.1) * 5
    behind = lag(meet(tmp_path, *spent((6,) * 10, late[0], late[1], (6,) * 10)))
    assert behind is not None
    assert behind.late == [1, 2]


@pytest.mark.parametrize(
    "steps",
    [
        # Late by turns, as on a busy machine, also where one is so somewhat more often.
        ((6, 1) * 5, (1, 6) * 5),
        ((6, 6, 6, 6, 6, 6, 6, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1, 6, 6, 6)),
        # Hardly late.
        ((4.5,) * 10, (4,) * 10),
        # Nothing is known of the others.
        ((6,) * 10,),
    ],
)
def test_nobody_is_blamed_for_what_is_not_always_so(
    steps: tuple[tuple[float, ...], ...], tmp_path: Path
) -> None:
    found = meet(tmp_path, *spent(*steps))
    assert lag(found) is None
    assert found.trust == []


def test_of_a_window_that_ended_early_on_one_rank_the_steps_of_both_are_compared(tmp_path: Path) -> None:
    found = meet(tmp_path, *spent((5, 7, 99), (1, 1)))
    assert found.waiting_ms == {0: [4, 6], 1: [0, 0]}


def test_where_windows_went_by_the_clock_their_means_are_compared(tmp_path: Path) -> None:
    by_clock = [one.model_copy(update={"by_time": True}) for one in spent((5, 7, 6), (1, 1))]
    assert meet(tmp_path, *by_clock).waiting_ms == {0: [5], 1: [0]}


def test_ranks_of_other_machines_that_left_nothing_are_named_with_what_to_do(tmp_path: Path) -> None:
    found = meet(tmp_path, RankSeen(times=times(0, 6, 4)), RankSeen(times=times(1, 6, 4)), world=4, local=2)
    (limit,) = found.trust
    assert limit.what == "ranks 2-3"
    assert "2 of 4 ranks run on this machine" in limit.effect
    assert "TRACKSIDE_HOME" in (limit.remedy or "")


def test_a_part_that_makes_no_sense_is_a_limit_and_no_failure(tmp_path: Path) -> None:
    first = joined(tmp_path, rank(0))
    joined(tmp_path, rank(1)).leave({"times": "none"})
    awaited = first.gather(lambda began: began, lambda text: None)
    found = side_by_side(first.rank, RankSeen(times=times(0, 6, 4)), awaited, "/")
    assert [one.what for one in found.trust] == ["rank 1"]
    assert found.times[1].step_ms is None


def test_what_other_captures_lack_is_told_once_and_not_again_where_the_first_lacks_it_too(
    tmp_path: Path,
) -> None:
    both, theirs = (
        Trust(what="modules", effect="cut"),
        Trust(what="part of the capture", effect="it ended early"),
    )
    found = meet(
        tmp_path,
        RankSeen(times=times(0, 6, 4), missing=[both]),
        RankSeen(times=times(1, 6, 4), missing=[both, theirs]),
        RankSeen(times=times(2, 6, 4), missing=[theirs]),
    )
    assert [(one.what, one.effect) for one in found.trust] == [
        ("part of the capture of ranks 1-2", "it ended early")
    ]


def test_windows_by_the_clock_say_how_far_apart_they_were(tmp_path: Path) -> None:
    def by_clock(number: int, late_ns: int) -> RankSeen:
        began = {"A": 10**9, "T": 2 * 10**9 + late_ns, "B": 3 * 10**9}
        return RankSeen(times=times(number, 6, 4), by_time=True, began_ns=began)

    (limit,) = meet(tmp_path, by_clock(0, 0), by_clock(1, 35_000_000)).trust
    assert limit.what == "windows went by the clock, and began up to 35 ms apart on the ranks"
    (limit,) = meet(tmp_path, by_clock(0, 0), RankSeen(times=times(1, 6, 4), began_ns={"A": 0})).trust
    assert "the windows of rank 0 went by the clock" in limit.effect


def test_ranks_count_from_when_the_last_of_them_had_imported_torch(tmp_path: Path) -> None:
    one, other = RankClock(str(tmp_path), 0, 2), RankClock(str(tmp_path), 1, 2)
    one.arrive(100)
    assert one.origin_ns(150) is None
    other.arrive(300)
    assert one.origin_ns(310) == other.origin_ns(310) == 300


def test_a_rank_counts_for_itself_where_the_others_do_not_come_or_cannot_be_told(tmp_path: Path) -> None:
    alone = RankClock(str(tmp_path), 0, 2)
    alone.arrive(100)
    assert alone.origin_ns(100 + 29 * 10**9) is None
    assert alone.origin_ns(100 + 31 * 10**9) == 100
    lost = RankClock(str(tmp_path / "gone"), 0, 2)
    lost.arrive(7)
    assert lost.origin_ns(8) == 7


# -- two ranks with gloo -----------------------------------------------------------------------------


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Torchrun]]:
    every: list[Torchrun] = []

    def begin(*words: str, **more: Any) -> Torchrun:
        every.append(Torchrun(tmp_path, *words, **more))
        return every[-1]

    yield begin
    for one in every:
        one.kill()


@pytest.mark.timeout(180)
def test_two_ranks_make_one_run_and_one_report(start: Callable[..., Torchrun]) -> None:
    ran = start("train.py", "40")
    code, out, err = ran.end()
    assert code == 0, err
    assert sorted(out.splitlines()) == [
        "rank 0 begins",
        "rank 0 is done",
        "rank 1 begins",
        "rank 1 is done",
    ]
    record = ran.record
    assert [one["rank"] for one in record["ranks"]] == [0, 1]
    for one in record["ranks"]:
        assert one["steps"] == 10
        assert one["step_ms"] > 0
        assert sum(one["breakdown_ms"].values()) == pytest.approx(one["step_ms"])
        assert one["breakdown_ms"]["communication"] > 0
        assert one["waiting_ms"] >= 0
        assert 0 < one["cpu_ms"] + one["delayed_ms"] <= 1.1 * one["step_ms"]
        assert one["peak_bytes"] > 50e6
        assert one["program"]["exit_code"] == 0
    # At the same steps on both: the counts that the story tells are not decided by a rank's own pace.
    assert [one["steps"] for one in record["windows"]] == [10, 3, 10, 3]
    assert record["step_ms"] == pytest.approx(record["ranks"][0]["step_ms"])
    # One story, by the first rank.
    assert err.count("trackside: timed:") == 1
    assert err.count("waiting for others") == 1
    assert err.count("next: trackside report") == 1
    assert not any((ran.home / "ranks").iterdir())
    (folder,) = (ran.home / "runs").iterdir()
    assert {path.name for path in folder.iterdir()} == {
        "record.json",
        "report.html",
        "run.json",
        "trace.json.gz",
    }


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_module_is_run_and_json_is_one_document_on_stdout(start: Callable[..., Torchrun]) -> None:
    ran = start(
        "--json", "--warmup", "1", "--steps", "2", "-m", "package.train", "20", name="package/train.py"
    )
    code, out, err = ran.end()
    assert code == 0, err
    record = json.loads(out)
    assert record["command"] == ["python", "-m", "package.train", "20"]
    assert [one["steps"] for one in record["windows"]] == [2, 1, 2, 2]
    assert len(record["ranks"]) == 2
    assert "rank 1 is done" in err


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_fails_fails_the_run_and_what_was_seen_is_kept(
    start: Callable[..., Torchrun], failing: int
) -> None:
    ran = start("train.py", "100000", f"fail={failing}@60")
    code, _, err = ran.end()
    assert code == 1
    # torchrun names the rank that failed first, and with what.
    assert re.search(rf"rank +: {failing} .*\n.*exitcode +: 7 ", err)
    record = ran.record
    ends = {one["rank"]: one["program"] for one in record["ranks"]}
    assert ends[failing]["exit_code"] == 7
    assert record["ranks"][1]["step_ms"] > 0
    assert f"rank {failing}: its program ended with exit code 7" in ran.limits or failing == 0


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_rank_that_is_killed_is_named_and_what_its_capture_wrote_is_used(
    start: Callable[..., Torchrun],
) -> None:
    ran = start("train.py", "100000", "kill=1@60")
    code, _, _ = ran.end()
    assert code == 1
    assert "rank 1: it was killed: what its capture had written is used" in ran.limits
    record = ran.record
    assert record["ranks"][1]["program"] is None
    assert record["ranks"][1]["step_ms"] > 0
    assert not any((ran.home / "ranks").iterdir())


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_rank_that_ends_before_its_windows_is_said_to_have_none(start: Callable[..., Torchrun]) -> None:
    # Without collectives, so that the other goes on.
    source = TRAINING.replace("model = DistributedDataParallel(model)\n", "").replace(
        "dist.destroy_process_group()", ""
    )
    ran = start("train.py", "60", "leave=1@3", source=source)
    code, _, err = ran.end()
    assert code == 0, err
    assert re.search("of rank 1: the program ended before", ran.limits)
    assert ran.record["ranks"][1]["steps"] == 0
    assert ran.record["ranks"][0]["steps"] == 10


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_rank_that_fails_while_the_first_reads_what_it_saw_does_not_cost_the_record(
    start: Callable[..., Torchrun],
) -> None:
    fails = """
first = torch.tensor([os.getpid()])
dist.broadcast(first, 0)
while rank == 1 and os.path.exists(f"/proc/{int(first)}"):
    time.sleep(0.05)
os._exit(7 * rank)
"""
    ran = start("train.py", "40", source=TRAINING.replace("dist.destroy_process_group()", fails))
    code, _, err = ran.end()
    assert code == 1
    assert "closing signal SIGTERM" in err
    assert [one["program"]["exit_code"] for one in ran.record["ranks"]] == [0, 7]
    assert "rank 1: its program ended with exit code 7" in ran.limits


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_ctrl_c_on_torchrun_leaves_one_record(start: Callable[..., Torchrun]) -> None:
    ran = start("train.py", "60", "then=wait")
    assert ran.process.stdout is not None
    for line in ran.process.stdout:
        if "waits" in line:
            break
    until(lambda: any((ran.home / "ranks").glob("*/rank-1/capture/trace.json")), "the windows of rank 1")
    ran.process.send_signal(signal.SIGINT)
    code, _, err = ran.end()
    assert code != 0
    record = ran.record
    assert len(record["ranks"]) == 2
    assert record["program"]["signal"] == "SIGINT", err
    assert not any((ran.home / "ranks").iterdir())


# Inference on each rank by itself: nothing steps, so windows go by the clock.
INFERENCE = """
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model, batch = torch.nn.Linear(256, 256), torch.randn(64, 256)
end = time.monotonic() + 6
with torch.no_grad():
    while True:
        for _ in range(20):
            batch = model(batch).tanh()
        over = torch.tensor([float(time.monotonic() > end)])
        dist.all_reduce(over)
        if over > 0:
            break
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_without_an_optimizer_ranks_have_their_windows_at_about_the_same_time(
    start: Callable[..., Torchrun],
) -> None:
    ran = start("infer.py", source=INFERENCE, name="infer.py")
    code, _, err = ran.end()
    assert code == 0, err
    assert len(ran.record["ranks"]) == 2
    apart = re.search(r"began up to ([\d.]+) (µs|ms|s) apart", ran.limits)
    assert apart is not None, ran.limits
    assert float(apart[1]) * {"µs": 1e-3, "ms": 1.0, "s": 1e3}[apart[2]] < 1000


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_runs_at_once_in_one_folder_keep_to_themselves(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    runs = [Torchrun(tmp_path / "a", "train.py", steps) for steps in ("41", "42")]
    ended = [one.end(200) for one in runs]
    assert [code for code, _, _ in ended] == [0, 0], [err for _, _, err in ended]
    records = [json.loads(path.read_text()) for path in (tmp_path / "a" / "home").glob("runs/*/record.json")]
    assert sorted(one["command"][-1] for one in records) == ["41", "42"]
    assert [len(one["ranks"]) for one in records] == [2, 2]
    assert not any((tmp_path / "a" / "home" / "ranks").iterdir())


# One rank also fetches what is for all of them. It waits for that and does not compute, so that a machine
# that is busy with other tests tells the same.
STRAGGLER = TRAINING.replace(
    "    optimizer.zero_grad()\n",
    "    time.sleep({LATE: FETCHES}.get(rank, OTHERS))\n    optimizer.zero_grad()\n",
)


def fetching(late: int, fetches: float, others: float) -> str:
    source = STRAGGLER.replace("LATE", str(late))
    return source.replace("FETCHES", str(fetches)).replace("OTHERS", str(others))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_works_longer_is_found_on_its_line_and_an_even_split_gains_what_was_predicted(
    start: Callable[..., Torchrun], late: int, tmp_path: Path
) -> None:
    source = fetching(late, 0.06, 0.0)
    broken = start("train.py", "40", source=source)
    assert broken.end()[0] == 0
    (found,) = [one for one in broken.record["findings"] if one["id"] == "straggler"]
    assert found["title"] == f"Rank {late} makes the others wait"
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "time.sleep({" in text)
    assert (found["file"], found["line"]) == ("train.py", line)
    assert found["item"] == "distributed.stragglers"
    assert "torchrun --nproc-per-node 2 train.py 40" in found["prove"]
    assert all(re.search(r"\d", text) for text in found["evidence"])
    assert "exposed-collectives" not in [one["id"] for one in broken.record["findings"]]
    (tmp_path / "repaired").mkdir()
    repaired = Torchrun(tmp_path / "repaired", "train.py", "40", source=fetching(late, 0.03, 0.03))
    assert repaired.end()[0] == 0
    assert [one for one in repaired.record["findings"] if one["id"] == "straggler"] == []
    gained = 1 - repaired.record["step_ms"] / broken.record["step_ms"]
    # The steps of both vary with what else the machine does.
    assert found["gain"]["low"] - 0.1 <= gained <= found["gain"]["high"] + 0.1


@pytest.mark.parametrize(("number", "told"), [("2", 1), ("3", 0)])
def test_without_the_first_rank_one_of_each_machine_says_so_and_the_exit_code_stays(
    number: str, told: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(5)")
    done = subprocess.run(
        [sys.executable, "-m", "trackside", "profile", "train.py"],
        env=os.environ
        | ENVIRONMENT
        | {"RANK": number, "WORLD_SIZE": "4", "TRACKSIDE_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 5
    assert done.stderr.count("in no report: rank 0 was not here") == told
    assert len(done.stderr.splitlines()) == told
    assert not any((tmp_path / "home" / "ranks").iterdir())


def test_counters_are_refused_on_ranks_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    done = subprocess.run(
        [sys.executable, "-m", "trackside", "profile", "--counters", "train.py"],
        env=os.environ | ENVIRONMENT | {"TRACKSIDE_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3
    assert "one of 2 ranks cannot do so alone" in done.stderr
    assert done.stdout == ""


# -- waiting for the devices ---------------------------------------------------------------------------------


class Ticks:
    """A clock that moves by sleeping only, and does something at the n-th sleep."""

    def __init__(self, deeds: dict[int, Callable[[], object]] | None = None) -> None:
        self.now, self.sleeps, self.deeds = 0.0, 0, deeds or {}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps += 1
        if deed := self.deeds.get(self.sleeps):
            deed()


def test_a_rank_begins_when_the_first_has_the_devices_however_long_that_takes(tmp_path: Path) -> None:
    first = joined(tmp_path, rank(0))
    ticks = Ticks({5000: first.begin})
    joined(tmp_path, rank(1), lambda: ticks.now).await_first(ticks.sleep)
    assert ticks.sleeps == 5000


def test_a_first_rank_that_comes_late_is_waited_for_and_one_that_died_or_never_comes_is_not(
    tmp_path: Path,
) -> None:
    late = Meeting(tmp_path, rank(0))
    ticks = Ticks({20: lambda: late.join(RunStore(tmp_path)), 300: late.begin})
    joined(tmp_path, rank(1), lambda: ticks.now).await_first(ticks.sleep)
    assert ticks.sleeps == 300
    late.close()
    assert 10 <= patience(tmp_path) < 11
    gone(tmp_path, 0)
    assert 10 <= patience(tmp_path) < 11


def patience(root: Path) -> float:
    """How long the second rank waits for the first."""
    ticks = Ticks()
    joined(root, rank(1), lambda: ticks.now).await_first(ticks.sleep)
    return ticks.now


def test_a_rank_on_another_machine_does_not_wait_for_the_first(tmp_path: Path) -> None:
    ticks = Ticks()
    joined(tmp_path, rank(2, 4, 2), lambda: ticks.now).await_first(ticks.sleep)
    assert ticks.sleeps == 0


@pytest.mark.timeout(180)
def test_no_rank_begins_while_another_measures_and_then_all_do(
    start: Callable[..., Torchrun], tmp_path: Path
) -> None:
    marked = "import os, pathlib; pathlib.Path('began-' + os.environ['RANK']).touch()\n" + TRAINING
    locks = tmp_path / "locks"
    locks.mkdir(mode=0o700)
    with holding_process("cpu", locks) as holder:
        ran = start("train.py", "10", source=marked, locks=locks)
        assert ran.process.stderr is not None
        waiting = next(line for line in ran.process.stderr if "waiting" in line)
        assert f"waiting: compare (process {holder.pid}) measures" in waiting
        until(lambda: len([*ran.home.glob("ranks/*/rank-*/here.json")]) == 2, "both are here")
        # A program that may begin does so at once.
        time.sleep(2)
        assert not [*tmp_path.glob("began-*")]
    code, out, err = ran.end()
    assert code == 0, err
    assert sorted(out.splitlines()) == ["rank 0 begins", "rank 0 is done", "rank 1 begins", "rank 1 is done"]
    assert [one["rank"] for one in ran.record["ranks"]] == [0, 1]
