"""The judge's clock on a CPU: it counts what a thawed process can use, and none of the judge's own work."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.comparison.benches import opened

from trackside.comparison import tolerance
from trackside.comparison.arms import BASELINE, CANDIDATE, Arm, Slot
from trackside.comparison.bench import Bench
from trackside.comparison.checks import Stop
from trackside.comparison.measure import Measurement, Plan, _look_for_late_work
from trackside.comparison.outputs import check_call
from trackside.records.errors import TracksideError

CALL_SECONDS, JUDGE_SECONDS = 0.1, 0.4

SEEDED = """
import torch

def inputs(seed, device):
    return (torch.randn(8, generator=torch.Generator(device).manual_seed(seed)),)

def run(x):
    return x + 1, torch.initial_seed()
"""

LENGTHS = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    long = torch.rand(1, generator=g) > 0.85
    return torch.randn(100_000, generator=g), 16 + 90_000 * long.long()

def run(x, n):
    return torch.exp(x[: int(n)])
"""

MAPPED = """
import ctypes, torch

def inputs(seed, device):
    return (torch.randn(8, generator=torch.Generator(device).manual_seed(seed)),)

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
of_its_own = ctypes.c_size_t.from_address(libc.malloc(31 << 20) - 8).value & 2

def run(x):
    return x + 1, of_its_own
"""

LEAVES_GARBAGE = """
import gc, torch

def inputs(seed, device):
    return (torch.randn(8, generator=torch.Generator(device).manual_seed(seed)),)

class Node:
    alive = 0
    def __init__(self):
        self.me = self
        Node.alive += 1
    def __del__(self):
        Node.alive -= 1
        Node.elsewhere += not Node.calling

Node.elsewhere, Node.calling = 0, False

def run(x):
    Node.calling = True
    for _ in range(20_000):
        Node()
    # Whoever makes a few objects more has this call's garbage collected.
    while gc.get_count()[0] < gc.get_threshold()[0] - 3:
        Node()
    Node.calling = False
    return x + 1, Node.alive, Node.elsewhere

# What is alive depends on the process, and not on the inputs: only the baseline's own output can be expected.
tolerance = 1e-3
"""

LARGE_STATE = """
import torch

def setup(seed, device):
    return {"held": torch.zeros(%d << 18), "calls": torch.zeros(())}

def inputs(seed, device):
    return (torch.randn(8, generator=torch.Generator(device).manual_seed(seed)),)

def run(state, x):
    state["calls"] += 1
    return x + 1
"""

SLEEPS = f"""
import time, torch

def inputs(seed, device):
    return (torch.randn(64, generator=torch.Generator(device).manual_seed(seed)),)

def run(x):
    time.sleep({CALL_SECONDS})
    return x + 1
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path = tmp_path_factory.mktemp("files") / "baseline.py"
    path.write_text(SLEEPS)
    with opened(path) as (made, _):
        yield made


def run_once(bench: Bench, arm: Arm) -> Slot:
    return bench.run(arm, [bench.draw()], [bench.seed()])


def test_a_frozen_arm_s_clock_runs_from_thaw_to_freeze(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    arm = bench.arms[BASELINE]
    ask = bench.ask

    def slow(op: str, **given: Any) -> Any:
        if op in ("fill", "take"):
            assert arm.process.frozen, f"a thawed arm could watch `{op}`"
            time.sleep(JUDGE_SECONDS)
        return ask(op, **given)

    bench.freeze(arm)
    monkeypatch.setattr(bench, "ask", slow)
    slot = run_once(bench, arm)
    assert CALL_SECONDS <= slot.judge_ns / 1e9 < JUDGE_SECONDS
    assert slot.judge_ns >= slot.calls[0].host


def test_an_arm_that_was_not_frozen_is_charged_for_the_copies_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = bench.arms[BASELINE]
    arm.process.thaw()
    ask = bench.ask

    def slow(op: str, **given: Any) -> Any:
        if op in ("fill", "take"):
            time.sleep(JUDGE_SECONDS)
        return ask(op, **given)

    monkeypatch.setattr(bench, "ask", slow)
    assert run_once(bench, arm).judge_ns / 1e9 >= CALL_SECONDS + 2 * JUDGE_SECONDS


def test_every_call_is_seeded_whether_it_is_held_or_not(tmp_path: Path) -> None:
    """Else a candidate could tell the calls that are looked at closely from those that are only timed."""
    path = tmp_path / "baseline.py"
    path.write_text(SEEDED)
    with opened(path) as (bench, _):
        for keep in (False, True):
            seeds = [bench.seed() for _ in range(3)]
            slot = bench.run(bench.arms[BASELINE], bench.draw_many(3), seeds, keep=keep)
            assert [call.leaves[1]["value"] for call in slot.calls] == seeds
            bench.forget([slot])


def test_a_call_pays_for_its_garbage_and_none_is_collected_beside_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "baseline.py"
    path.write_text(LEAVES_GARBAGE)
    with opened(path) as (bench, _):
        calls = [run_once(bench, bench.arms[BASELINE]).calls[0] for _ in range(4)]
    alive, elsewhere = ([call.leaves[i]["value"] for call in calls] for i in (1, 2))
    assert max(alive) < 20_000, "nothing was collected"
    assert len(set(elsewhere)) == 1, "collected while no call ran"


def test_slots_without_calls_show_what_an_arm_takes_to_restore_its_state(tmp_path: Path) -> None:
    took = {}
    for megabytes in (1, 256):
        path = tmp_path / f"of_{megabytes}.py"
        path.write_text(LARGE_STATE % megabytes)
        with opened(path) as (bench, _):
            arm = bench.arms[BASELINE]
            assert bench.contract["restore"]
            took[megabytes] = min(bench.run_idle(arm, 2, 1) for _ in range(5))
            slot = bench.run(arm, bench.draw_many(2), [bench.seed(), bench.seed()])
            assert slot.judge_ns > 0.5 * took[megabytes]
    assert took[256] > took[1] + 2 * 256 * 2**20 / 100, "copied at more than 100 GB/s"


def test_the_first_large_block_comes_from_the_heap(tmp_path: Path) -> None:
    """By itself glibc maps a large block until one was freed: calls' times depend on what went before."""
    path = tmp_path / "baseline.py"
    path.write_text(MAPPED)
    with opened(path) as (bench, _):
        slot = run_once(bench, bench.arms[BASELINE])
        assert slot.calls[0].leaves[1]["value"] == 0, "glibc marks a block that was mapped for itself"


def test_outputs_that_outgrow_their_slots_are_given_room_and_made_again(tmp_path: Path) -> None:
    path = tmp_path / "baseline.py"
    path.write_text(LENGTHS)
    with opened(path) as (bench, study):
        arm, room = bench.arms[BASELINE], bench.output_bytes
        bench.freeze(arm)
        while bench.output_bytes == room:
            seed = bench.seed()
            slot = bench.run(arm, [bench.draw()], [seed])
            (leaf,) = slot.calls[0].leaves
            assert leaf["copied"]
            (found,) = bench.errors(slot.calls[0])
            assert tolerance.relative_error(found["bins"])["max"] < 1e-6
            bench.forget([slot])
        assert leaf["span"] > room
        assert arm.process.frozen
        assert study.least_output_bytes == 4 * 16, "the floor must hold for the shortest call"


@pytest.mark.parametrize(
    ("columns", "read"), [(3_000, True), (2_400_000, False)], ids=["a large result", "beyond all bounds"]
)
def test_a_candidate_s_view_of_something_larger_is_read_within_bounds(
    tmp_path: Path, columns: int, read: bool
) -> None:
    paths = tmp_path / "baseline.py", tmp_path / "candidate.py"
    paths[0].write_text(SEEDED.replace(", torch.initial_seed()", ""))
    body = f"return torch.zeros(8, {columns})[:, 0].add_(x + 1)"
    paths[1].write_text(f"import torch\n\ndef run(x):\n    {body}\n")
    with opened(paths[0]) as (bench, study):
        arm = bench.start(CANDIDATE, paths[1], study.facts["format"], 0, 1, 1, 60)
        sets, seeds = [bench.draw()], [bench.seed()]
        slots = [bench.run(one, sets, seeds) for one in (bench.arms[BASELINE], arm)]
        standard, call = (slot.calls[0] for slot in slots)
        assert call.leaves[0]["copied"] is read
        if read:
            check_call(bench, study, call, standard)
            assert bench.ledger.results["output-structure"].status == "pass"
        else:
            with pytest.raises(Stop, match=r"spans 67,200,004 bytes, the baseline's 32; .*contiguous"):
                check_call(bench, study, call, standard)


def test_the_seeds_of_calls_foretell_nothing_else(bench: Bench) -> None:
    before = bench.rng.getstate()
    assert len({bench.seed() for _ in range(700)}) == 700
    assert bench.rng.getstate() == before


@pytest.mark.parametrize(("seconds", "derived"), [(0.0, False), (0.15, True)], ids=["quick", "slow"])
def test_timed_sets_are_derived_only_where_drawing_one_takes_longer(
    tmp_path: Path, seconds: float, derived: bool
) -> None:
    path = tmp_path / "baseline.py"
    # Large enough that studying a set takes longer than drawing it.
    path.write_text(
        SEEDED.replace("randn(8", "randn(300_000").replace(
            "    return (torch", f"    __import__('time').sleep({seconds})\n    return (torch"
        )
    )
    with opened(path) as (bench, study):
        bench.choose_drawing(study.run_ns / 1e9)
        assert bench.derive is derived
        (made,) = bench.draw_timed()
        bench.ask("forget", sets=[made], calls=[])


SLOW = """
import time

def run(x):
    time.sleep(0.3)
    return x + 1, 0
"""

SIDE_BY_SIDE = """
import torch

def inputs(seed, device):
    return (torch.randn(64, 96, generator=torch.Generator(device).manual_seed(seed)),)

def run(x):
    y = x * 2
    return *y.chunk(3, -1), y[:, 7], y.sum()
"""


def test_further_calls_of_a_slot_have_their_own_time(tmp_path: Path) -> None:
    path, slow = tmp_path / "baseline.py", tmp_path / "slow.py"
    path.write_text(SEEDED)
    slow.write_text(SLOW)
    with opened(path) as (bench, study):
        arm = bench.start(CANDIDATE, slow, study.facts["format"], 0, 1, 1, 60)
        arm.call_timeout = 1.0
        bench.further_timeout = 0.6
        sets, seeds = [bench.draw()], [bench.seed()]
        assert len(bench.run(arm, sets, seeds, repeat=7).calls) == 1
        bench.further_timeout = 0.1
        with pytest.raises(Stop, match=r"gave no answer to `calls` within 1\.7 s"):
            bench.run(arm, sets, seeds, repeat=7)


@pytest.mark.parametrize(
    ("others", "verdict", "check"), [(0, "rejected", "worker-survives"), (2, "inconclusive", "machine-quiet")]
)
def test_memory_that_runs_out_beside_other_processes_on_the_gpu_is_not_the_candidate_s_fault(
    tmp_path: Path, others: int, verdict: str, check: str
) -> None:
    path, hungry = tmp_path / "baseline.py", tmp_path / "hungry.py"
    path.write_text(SEEDED)
    hungry.write_text("import torch\n\n\ndef run(x):\n    return torch.empty(1 << 60)\n")
    with opened(path) as (bench, study):
        bench.others = lambda: others
        arm = bench.start(CANDIDATE, hungry, study.facts["format"], 0, 1, 1, 60)
        with pytest.raises(Stop, match=r"hungry\.py:5 in `calls`") as stopped:
            bench.run(arm, [bench.draw()], [bench.seed()])
    assert (stopped.value.outcome, stopped.value.check) == (verdict, check)


def test_views_that_lie_side_by_side_in_one_tensor_are_copied_once(tmp_path: Path) -> None:
    path = tmp_path / "baseline.py"
    path.write_text(SIDE_BY_SIDE)
    with opened(path) as (bench, study):
        sets, seeds = [bench.draw()], [bench.seed()]
        slot = bench.run(bench.arms[BASELINE], sets, seeds)
        whole, element = 64 * 96 * 4, 4
        assert slot.output_bytes == whole + element
        offsets = [leaf["offset"] for leaf in slot.calls[0].leaves]
        assert offsets == [0, 128, 256, 28, whole]
        # Read back from there, all of them are right.
        check_call(bench, study, slot.calls[0], slot.calls[0])
        assert tolerance.relative_error(bench.errors(slot.calls[0])[2]["bins"])["rms"] < 1e-6


def test_the_look_for_late_work_gives_both_arms_the_same_inputs_and_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "baseline.py"
    path.write_text(SEEDED)
    plan = Plan("cuda", 2, 4, 0, 0.01, "device", 5.0, False, False)
    with opened(path) as (bench, study):
        both = {BASELINE: path, CANDIDATE: path}
        bench.start_all(both, study.facts["format"], 0, 1, plan.batch + 1, 60)
        run = bench.run
        # Calls are paced on a GPU only.
        monkeypatch.setattr(bench, "run", lambda *given, paced, **named: run(*given, **named))
        before = bench.id()
        _look_for_late_work(bench, plan, Measurement(plan))
        used = range(before + 1, bench.id())
        assert len(used) > 2 * plan.batch
        for one in used:
            with pytest.raises(TracksideError, match="KeyError"):
                bench.ask("moved", set=one)
