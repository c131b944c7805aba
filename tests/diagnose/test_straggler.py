"""A rank that the others wait for: what is said of it, and of what it is not blamed. Live: test_ranks.py."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.trace.kineto import Maker

from trackside.diagnose.diagnosis import diagnose
from trackside.diagnose.evidence import Evidence, gather
from trackside.profiling.captured import Captured
from trackside.profiling.rank_times import RanksSeen
from trackside.records.profile import Finding, Line, RankTimes
from trackside.trace.reader import read_trace

STEP = 20.0


def times(rank: int, communication: float, waiting: float, delayed: float | None = None) -> RankTimes:
    parts = {"compute": STEP - communication, "communication": communication, "copy": 0, "host": 0, "idle": 0}
    return RankTimes.model_validate(
        {
            "rank": rank,
            "host": "here",
            "device": "cpu",
            "step_ms": STEP,
            "spread": 0.0,
            "steps": 10,
            "breakdown_ms": parts,
            "waiting_ms": waiting,
            "delayed_ms": delayed,
        }
    )


def line(number: int, cpu_ms: float) -> Line:
    return Line(
        file="train.py",
        line=number,
        text="",
        function="train",
        device_ms=0.0,
        backward_ms=0.0,
        cpu_ms=cpu_ms,
        share=cpu_ms / STEP,
        calls=1,
    )


def ranks(late: dict[int, float], world: int = 4, steps: int = 10, delayed: float | None = None) -> RanksSeen:
    """Ranks that spend a millisecond in transfers and wait for the late ones, each so much behind."""
    most = max(late.values())
    waiting = {rank: most - late.get(rank, 0.0) for rank in range(world)}
    return RanksSeen(
        times=[
            times(rank, 1 + waited, waited, delayed if rank in late else 0.0)
            for rank, waited in waiting.items()
        ],
        lines={
            rank: [line(7, 5.0), line(8, STEP - 6 if rank in late else STEP - 6 - most)]
            for rank in range(world)
        },
        waiting_ms={rank: [waited] * steps for rank, waited in waiting.items()},
    )


@pytest.fixture
def plain(tmp_path: Path) -> Evidence:
    """The first rank's own steps, in which there is nothing to find."""
    maker = Maker()
    for number in range(4):
        start = 1000.0 * number
        maker.mark(f"ProfilerStep#{number}", start, 999)
        maker.op("aten::mm", start + 10, 900)
    captured = Captured(traced=read_trace(maker.write(tmp_path / "a.json")))
    gathered = gather(captured, ["train.py", "--lr", "1"])
    assert gathered is not None
    return gathered


def found(plain: Evidence, seen: RanksSeen) -> list[Finding]:
    diagnosis = diagnose(replace(plain, ranks=seen))
    assert diagnosis.failed == []
    return [one for one in diagnosis.findings if one.id == "straggler"]


def test_it_is_named_with_the_line_on_which_it_spends_more_and_with_what_an_even_split_gains(
    plain: Evidence,
) -> None:
    (one,) = found(plain, ranks({2: 8.0}))
    assert one.title == "Rank 2 makes the others wait"
    assert (one.file, one.line) == ("train.py", 8)
    assert one.evidence == [
        "In 10 of 10 traced steps the others wait in collectives for it, 8 ms of a step of 20 ms (40 %).",
        "Outside of collectives rank 2 works 19 ms of a step, the others 11 ms.",
        "train.py:8 takes 14 ms on rank 2 and 6 ms on the others.",
    ]
    # Three of four wait 8 ms; split over four, the work takes each of them 2.
    assert one.gain.mid == pytest.approx(6 / STEP)
    assert one.gain.low < one.gain.mid < one.gain.high <= 8 / STEP + 0.05
    assert one.prove == (
        "trackside compare --command 'torchrun --nproc-per-node 4 train.py --lr 1' "
        "'torchrun --nproc-per-node 4 train_new.py --lr 1'"
    )


def test_a_rank_that_is_slower_throughout_has_no_line(plain: Evidence) -> None:
    seen = ranks({2: 8.0})
    everywhere = {rank: [line(n, 1.1 if rank == 2 else 0.3) for n in range(10)] for rank in range(4)}
    (one,) = found(plain, replace(seen, lines=everywhere))
    assert one.file is None
    assert one.confidence == "low"
    assert "trackside doctor" in one.fix


def test_several_late_ranks_are_named_together(plain: Evidence) -> None:
    (one,) = found(plain, ranks({2: 8.0, 3: 7.9}, world=8))
    assert one.title == "Ranks 2-3 make the others wait"


def test_by_the_clock_only_means_can_be_compared(plain: Evidence) -> None:
    (one,) = found(plain, ranks({2: 8.0}, steps=1))
    assert one.evidence[0].startswith("On the average the others wait")


def not_blamed() -> Sequence[RanksSeen]:
    return [
        RanksSeen(),
        ranks({2: 1.0}),
        # Others had its core.
        ranks({2: 8.0}, delayed=7.0),
    ]


@pytest.mark.parametrize("seen", not_blamed())
def test_no_other_rank_is_blamed(seen: RanksSeen, plain: Evidence) -> None:
    assert found(plain, seen) == []


def test_what_all_findings_gain_together_has_it_in_it(plain: Evidence) -> None:
    diagnosis = diagnose(replace(plain, ranks=ranks({2: 8.0})))
    assert diagnosis.together is not None
    assert diagnosis.together.mid >= 6 / STEP


def test_a_module_is_proved_as_a_module(plain: Evidence) -> None:
    (one,) = found(replace(plain, command=("-m", "package.train", "1")), ranks({2: 8.0}))
    assert one.prove is not None
    assert "torchrun --nproc-per-node 4 -m package.train 1" in one.prove
    assert "-m package.train_new 1" in one.prove
