"""State that is special as `setup` leaves it: whether the candidate counts on that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from trackside.comparison.bench import BASELINE, CANDIDATE, Bench
from trackside.comparison.outputs import check_call
from trackside.comparison.probing import PROBE_SECONDS, baseline_copes, differs, few_of
from trackside.comparison.study import Study, oracle_is_finite
from trackside.records.errors import TracksideError
from trackside.workload.time_limit import allowed

__all__ = ["probe_state"]

_SETS = 2
# Seconds in which leaves are looked at one by one, to see that each matters.
_LEAF_SECONDS = 5.0
# Copies of the state in two further workers: its own, one to restore it from, and what is packed of it.
_STATE_COPIES = 6
# In which a baseline that may compile must be done; one that waits for convergence may never be.
_FIRST_CALL_SECONDS = 60.0
# What CUDA takes for itself in a process.
_CONTEXT_BYTES = 1 << 30


def probe_state(
    bench: Bench, study: Study, files: dict[str, Path], format: str, setup_seed: int
) -> list[str]:
    """Two further workers with another state, where some of it is all 0 or 1, an identity or a copy.

    Returns:
        What the candidate was right on, in words for a list; empty where it could not be asked.
    """
    looked_at = bench.ask("suspects")
    study.suspects, kinds = looked_at["kinds"], looked_at["bendable"]
    if not study.suspects:
        return []
    timeout = bench.arms[CANDIDATE].call_timeout
    if why := _ruled_out(bench, study, kinds, looked_at["bytes"]):
        study.probes["state"] = f"not applicable: {why}"
        return []
    try:
        why = _probe(bench, study, files, format, setup_seed, kinds, timeout)
    finally:
        bench.situation = ""
        bench.ask("unbend")
    study.probes["state"] = f"not counted: {why}" if why else "passed"
    return [] if why else ["another state"]


def _ruled_out(bench: Bench, study: Study, kinds: dict[str, str], size: int) -> str:
    """Why such a state cannot be asked about; empty where it can."""
    if study.facts["format"] != "native":
        return "parameters come from a constructor of the candidate's own"
    if not bench.arms[CANDIDATE].borrows_setup:
        return "the candidate has a `setup` of its own, or takes no state"
    if not kinds:
        return "which integers are legal is not known"
    free = bench.ask("free_memory")["bytes"]
    if free is None:
        free, needed = psutil.virtual_memory().available, _STATE_COPIES * size
    else:
        needed = sum(
            _CONTEXT_BYTES + bench.tell(arm, "facts", 60)["device_peak"] for arm in bench.arms.values()
        )
    return "there is no memory for two further processes" if needed > free else ""


def _probe(
    bench: Bench,
    study: Study,
    files: dict[str, Path],
    format: str,
    setup_seed: int,
    kinds: dict[str, str],
    timeout: float,
) -> str:
    """Why the probe did not count; empty where it did."""
    sets, seeds = bench.draw_many(_SETS), [bench.seed() for _ in range(_SETS)]
    bent: dict[str, Any] = {"kinds": kinds, "seed": bench.set_seed()}
    # What must not be negative (a variance, say) is not where nothing is moved below zero.
    for signed in (True, False):
        try:
            bench.ask("bend", **bent, signed=signed)
            if study.random or all(
                oracle_is_finite(bench, study, made, seed, PROBE_SECONDS)
                for made, seed in zip(sets, seeds, strict=True)
            ):
                break
        except TracksideError:
            pass
    else:
        return "the oracle is not finite there, or only inside an operator"
    with bench.apart():
        try:
            arms = {name: files[name] for name in (BASELINE, CANDIDATE)}
            bench.situation = " on probe `state`"
            base, cand = bench.start_all(
                arms, format, 0, setup_seed, _SETS, timeout, bent={**bent, "signed": signed}
            )
            bench.build_seconds += cand.build_seconds
            limit = allowed(_FIRST_CALL_SECONDS, study.run_ns / 1e9)
            expected = bench.run(base, sets, seeds, building=True, limit=limit)
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
