"""Other values in the state: whether the candidate counts on what those that `setup` gives are like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from trackside.comparison.arms import BASELINE, CANDIDATE, Arm, Slot
from trackside.comparison.baseline import oracle_is_finite
from trackside.comparison.bench import Bench
from trackside.comparison.checks import Ledger, Stop
from trackside.comparison.outputs import check_call
from trackside.comparison.probing import PROBE_SECONDS, baseline_copes, differs, few_of
from trackside.comparison.study import Study
from trackside.records.errors import TracksideError
from trackside.workload.time_limit import allowed

__all__ = ["probe_state"]

_SETS = 2
# Seconds in which leaves are looked at one by one, to see that each matters.
_LEAF_SECONDS = 5.0
# Copies of the state in two further workers: its own, one to restore it from, and what is packed of it.
_STATE_COPIES = 6
# Copies of it in the reference process, to bend it and to put it back.
_REFERENCE_COPIES = 2
# In which a baseline that may compile must be done; one that waits for convergence may never be.
_FIRST_CALL_SECONDS = 60.0
# What starting the arms so far may have taken, first calls included, for two more to be started that can only
# end in a warning.
_MOST_BUILDING = 60.0
# What CUDA takes for itself in a process.
_CONTEXT_BYTES = 1 << 30
# Of what a candidate says of itself a warning shows so much.
_LONGEST = 400
_UNLIKE = "the oracle is not finite there, or only inside an operator"


@dataclass(frozen=True)
class _Asked:
    """How further workers are started, and with which part of the state moved."""

    bench: Bench
    study: Study
    files: dict[str, Path]
    format: str
    setup_seed: int
    timeout: float
    """Seconds for a call of theirs."""
    size: int
    """Bytes of the state."""

    @property
    def first_call_seconds(self) -> float:
        return allowed(_FIRST_CALL_SECONDS, self.study.run_ns / 1e9)

    def start(self, bent: dict[str, Any], slots: int) -> list[Arm]:
        arms = {name: self.files[name] for name in (BASELINE, CANDIDATE)}
        started = self.bench.start_all(arms, self.format, 0, self.setup_seed, slots, self.timeout, bent=bent)
        self.bench.build_seconds += started[-1].build_seconds
        return started


def probe_state(
    bench: Bench, study: Study, files: dict[str, Path], format: str, setup_seed: int
) -> list[str]:
    """Further workers with another state.

    First where some of it is all 0 or 1, an identity or a copy, with other values there: who is wrong then
    dropped it. Then with other values in all that is like parameters: code may be honest and count on
    sorted knots, or on a scale and its inverse, so that who is wrong there is told of only.

    Returns:
        What the candidate was right on, in words for a list; empty where it could not be asked.
    """
    looked_at = bench.ask("suspects")
    study.suspects, special, paths = (looked_at[key] for key in ("kinds", "bendable", "ordinary"))
    if not (study.suspects or paths):
        return []
    asked = _Asked(
        bench, study, files, format, setup_seed, bench.arms[CANDIDATE].call_timeout, looked_at["bytes"]
    )
    right = []
    if study.suspects:
        unknown = "" if special else "which integers are legal is not known"
        if why := _ruled_out(asked, _STATE_COPIES) or unknown:
            study.probes["state"] = f"not applicable: {why}"
        else:
            with _bent_for_a_while(bench):
                why = _probe(asked, special)
            study.probes["state"] = f"not counted: {why}" if why else "passed"
            right += [] if why else ["another state"]
    if paths:
        if why := _ruled_out(asked, _STATE_COPIES + _REFERENCE_COPIES) or _slow_to_build(asked):
            study.probes["whole state"] = f"not applicable: {why}"
        else:
            # What is special stays where the baseline may want it so: an identity to be decomposed, say.
            kinds = dict.fromkeys(paths, "any") | (special if right else {})
            with _bent_for_a_while(bench):
                why = _probe_whole(asked, kinds, few_of(paths))
            study.probes["whole state"] = why or "passed"
            right += [] if why else ["other values throughout the state"]
    return right


@contextmanager
def _bent_for_a_while(bench: Bench) -> Iterator[None]:
    """Afterwards the reference process has the state that `setup` made, and calls are ordinary ones."""
    try:
        yield
    finally:
        bench.situation = ""
        bench.ask("unbend")


def _ruled_out(asked: _Asked, copies: int) -> str:
    """Why such a state cannot be asked about; empty where it can."""
    bench = asked.bench
    if asked.study.facts["format"] != "native":
        return "parameters come from a constructor of the candidate's own"
    if not bench.arms[CANDIDATE].borrows_setup:
        return "the candidate has a `setup` of its own, or takes no state"
    free = bench.ask("free_memory")["bytes"]
    if free is None:
        free, needed = psutil.virtual_memory().available, copies * asked.size
    else:
        needed = (copies - _STATE_COPIES) * asked.size + sum(
            _CONTEXT_BYTES + bench.tell(arm, "facts", 60)["device_peak"] for arm in bench.arms.values()
        )
    return "there is no memory for two further processes" if needed > free else ""


def _slow_to_build(asked: _Asked) -> str:
    taken = asked.bench.build_seconds - asked.study.built_before
    if taken <= _MOST_BUILDING:
        return ""
    return f"loading, setting up and compiling took {taken:.0f} s so far, and would once more"


def _bend(asked: _Asked, kinds: dict[str, str], sets: Sequence[int], seeds: Sequence[int]) -> dict[str, Any]:
    """Bend the state where the oracle has it; returns how workers are to, or nothing where it fails there."""
    bench, study = asked.bench, asked.study
    bent: dict[str, Any] = {"kinds": kinds, "seed": bench.set_seed()}
    # What must not be negative (a variance, say) is not where nothing is moved below zero.
    for signed in (True, False):
        try:
            bench.ask("bend", **bent, signed=signed)
            if study.random or all(
                oracle_is_finite(bench, study, made, seed, PROBE_SECONDS)
                for made, seed in zip(sets, seeds, strict=True)
            ):
                return {**bent, "signed": signed}
        except TracksideError:
            pass
    return {}


def _probe(asked: _Asked, kinds: dict[str, str]) -> str:
    """Why the probe did not count; empty where it did."""
    bench, study = asked.bench, asked.study
    sets, seeds = bench.draw_many(_SETS), [bench.seed() for _ in range(_SETS)]
    bent = _bend(asked, kinds, sets, seeds)
    if not bent:
        return _UNLIKE
    with bench.apart():
        try:
            bench.situation = " on probe `state`"
            base, cand = asked.start(bent, _SETS)
            expected = bench.run(base, sets, seeds, building=True, limit=asked.first_call_seconds)
        except TracksideError as error:
            return f"the baseline refuses it ({error.message[:300]})"
        counted = [call for call in expected.calls if baseline_copes(bench, study, call)]
        if not counted:
            return "the baseline itself fails there"
        slot = bench.run(cand, sets, seeds, building=True)
        label = f"probe `state` (other values in {few_of(list(kinds))})"
        for call, standard in zip(slot.calls, expected.calls, strict=True):
            if standard in counted:
                check_call(bench, study, call, standard, "holds-on-probes", label)
        standard = counted[0]
        known = {leaf["path"]: leaf.get("bins", {}) for leaf in bench.errors(standard)}
        rows = bench.ask("straight", set=standard.set, seed=standard.seed, seconds=_LEAF_SECONDS)["found"]
        for row in rows:
            # By more than rounding may make of it: less than that no values that `setup` gives would show.
            if any(
                differs(study, leaf, known.get(leaf["path"], {}), "state", slack=1) for leaf in row["leaves"]
            ):
                study.settled.update(row["state"])
        bench.forget([slot, expected])
    return ""


def _probe_whole(asked: _Asked, kinds: dict[str, str], names: str) -> str:
    """Why the candidate is not known to be right there; empty where it is. Where it is wrong, that is noted.

    Whatever goes wrong in its worker is an answer like a wrong output: both fail in a ledger of their own.
    """
    bench, study = asked.bench, asked.study
    made, seed = bench.draw_many(1), [bench.seed()]
    bent = _bend(asked, kinds, made, seed)
    if not bent:
        return f"not counted: {_UNLIKE}"
    there = f"with other values in {names}"
    slots: list[Slot] = []
    with bench.apart(), _off_the_record(bench) as ledger:
        try:
            bench.situation = f" {there}"
            base, cand = asked.start(bent, 1)
            limit = asked.first_call_seconds
            slots.append(bench.run(base, made, seed, building=True, limit=limit))
            standard = slots[0].calls[0]
            if not baseline_copes(bench, study, standard):
                return "not counted: the baseline itself fails there"
            slots.append(bench.run(cand, made, seed, building=True, timeout=min(limit, bench.build_timeout)))
            check_call(bench, study, slots[1].calls[0], standard, "holds-on-probes", there, brief=True)
            ledger.settle()
        except TracksideError as error:
            # Of the baseline or the oracle: what goes wrong in the candidate stops.
            return f"not counted: the baseline refuses it ({error.message[:300]})"
        except Stop as stop:
            if stop.outcome != "rejected":
                return f"not counted: {stop.detail[:300]}"
            study.only_as_made = stop.detail[:_LONGEST]
            return "the candidate is wrong there"
        finally:
            bench.ask("forget", sets=made, calls=[call.id for slot in slots for call in slot.calls])
    return ""


@contextmanager
def _off_the_record(bench: Bench) -> Iterator[Ledger]:
    """What calls show meanwhile goes to a ledger that decides nothing."""
    usual, bench.ledger = bench.ledger, Ledger()
    try:
        yield bench.ledger
    finally:
        bench.ledger = usual
