"""The judge's clock on a CPU: it counts what a thawed process can use, and none of the judge's own work."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.comparison.benches import opened

from trackside.comparison.bench import BASELINE, Arm, Bench, Slot

CALL_SECONDS, JUDGE_SECONDS = 0.1, 0.4

SEEDED = """
import torch

def inputs(seed, device):
    return (torch.randn(8, generator=torch.Generator(device).manual_seed(seed)),)

def run(x):
    return x + 1, torch.initial_seed()
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


def test_the_first_large_block_comes_from_the_heap(tmp_path: Path) -> None:
    """By itself glibc maps a large block until one was freed: calls' times depend on what went before."""
    path = tmp_path / "baseline.py"
    path.write_text(MAPPED)
    with opened(path) as (bench, _):
        slot = run_once(bench, bench.arms[BASELINE])
        assert slot.calls[0].leaves[1]["value"] == 0, "glibc marks a block that was mapped for itself"


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
