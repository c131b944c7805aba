"""What the baseline does: its outputs, contract, errors, oracle and speed, learnt by running it alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trackside.comparison import tolerance
from trackside.comparison.answers import bytes_held
from trackside.comparison.arms import BASELINE, Arm, Call
from trackside.comparison.bench import Bench
from trackside.comparison.checks import Ledger
from trackside.comparison.lifetime import kept_outputs_change
from trackside.comparison.rooms import room_for
from trackside.comparison.study import AUDIT_SLOTS, Study, dtype_of, plain_dtype
from trackside.records.errors import TracksideError

__all__ = [
    "BROKEN",
    "UNSTABLE",
    "extend_contract",
    "fit_outputs",
    "learn",
    "oracle_is_finite",
    "study_baseline",
]

# Baseline calls after which its error per bin is known well enough; each costs as much as a check.
_ENOUGH_LEARNED = 12
_ITS_OWN = "the baseline's own output"
# Roundings that show what they make of an output that seems wrong, or nothing, and most seconds for them.
_NOISY_DRAWS, _NOISY_SECONDS = 4, 20.0
# What rounding moves by so much of its size each time is nothing but rounding: what a float32 bias before a
# norm learns, a sum that is rounded as often as there are pixels, by all of it; a bfloat16 gradient by 1 %.
_NOTHING_BUT_ROUNDING, _ROUNDED_INSIDE = 0.25, 64
# Beyond this rms error the baseline does not compute what its oracle says, in any precision.
BROKEN = 0.05
# Two runs on the same inputs that differ by more than rounding makes anything of the candidate's a guess.
UNSTABLE = 0.02


def study_baseline(
    bench: Bench, path: Any, format: str, facts: dict[str, Any], setup_seed: int, timeout: float
) -> Study:
    """Run the baseline alone until its outputs, contract, oracle and speed are known."""
    study = Study(facts, built_before=bench.build_seconds)
    declared = facts["tolerance"]
    if declared is not None:
        given: dict[str, float] = declared if isinstance(declared, dict) else {"rms": float(declared)}
        rms = float(given.get("rms") or given.get("max") or 0.0)
        study.declared = {"rms": rms, "max": given.get("max", 16 * rms)}
    arm = bench.start(BASELINE, path, format, 0, setup_seed, 1, timeout)
    _learn_contract(bench, arm, study, setup_seed)
    bench.map_arena(arm, AUDIT_SLOTS)
    bench.ask("reserve", bytes=bench.output_bytes, count=4 * AUDIT_SLOTS)
    _prove_oracle(bench, arm, study)
    _learn_lifetime(bench, arm, study)
    study.flags = bench.tell(arm, "facts", 60)["flags"]
    study.build_seconds = arm.build_seconds
    return study


def _learn_contract(bench: Bench, arm: Arm, study: Study, setup_seed: int) -> None:
    """What a call returns, and which inputs and state it changes."""
    first = bench.draw()
    assert first is not None
    look = bench.tell(arm, "state_back", 60)
    before = look["digests"]
    slot = bench.run(arm, [first], [bench.seed()], building=True, fit=False)
    bench.tell(arm, "inputs_back", 60, slot=0)
    changed = bench.ask("inputs_changed", arm=BASELINE, slot=0, set=first)["changed"]
    after = bench.tell(arm, "state_back", 60)["digests"]
    second = bench.draw()
    assert second is not None
    slots = [slot, bench.run(arm, [second], [bench.seed()], timeout=bench.build_timeout, fit=False)]
    later = bench.tell(arm, "state_back", 60)["digests"]
    # What the first call makes and the next one leaves alone is a memo (a mask, a table, a flag), not state.
    moved = [
        path
        for path in later
        if later[path] != after.get(path)
        or (path in before and after.get(path) != before[path] and _is_tensor(later[path]))
    ]
    bench.contract = {
        "inputs": sorted(int(i) for i in changed),
        "state": moved,
        "names": {},
        "restore": bool(moved),
    }
    study.state_paths = before
    for path, what in list(look["unseen"].items())[:1]:
        bench.ledger.warned(
            "state-matches", f"state {path} is a {what}: whether calls change it was not looked at"
        )
    bench.forget(slots)
    # The state was used: make it anew, so that restoring means the state that `setup` gave.
    bench.tell(arm, "setup", bench.build_timeout, seed=setup_seed)
    bench.ask("contract", **bench.contract)
    study.leaves = fit_outputs(bench, arm)
    for f in study.leaves:
        if f["kind"] not in ("tensor", "value"):
            raise TracksideError(
                "workload",
                f"the baseline's output {f['path'] or 'out'} is a {f['kind']}; needed: tensors and "
                "plain values, nested in tuples, lists and dicts",
                "return tensors from `run`",
            )
    if not any(f["kind"] == "tensor" or isinstance(f.get("value"), dict | int) for f in study.leaves):
        raise TracksideError(
            "workload",
            "the baseline returns no tensor and no number, and changes nothing: there is no output to check",
            "return the result from `run`, or change an input or the state in place",
        )


def extend_contract(bench: Bench, study: Study, standard: Call, inputs: Sequence[int]) -> None:
    """Count inputs that the baseline changes in some calls only as outputs too; `standard` holds such ones.

    A guard such as `clamp_` bites in one draw of many, and what was learnt from the first ones lacks it.
    """
    bench.contract["inputs"] = sorted({*bench.contract["inputs"], *inputs})
    bench.ask("contract", **bench.contract)
    bench.enlarge(bench.output_bytes + room_for(sum(f["span"] for f in standard.leaves)))
    study.leaves += standard.leaves
    # What is known of the baseline's accuracy lacks these, and an error that nothing is known of is no error.
    study.learned = 0
    _take_in(bench, study, standard)
    _judge_baseline(bench.ledger, study)


def _is_tensor(digest: list[Any]) -> bool:
    """Plain numbers have a size below zero."""
    return bool(digest[2] >= 0)


def fit_outputs(bench: Bench, arm: Arm) -> list[dict[str, Any]]:
    """Make the slots large enough for the baseline's outputs, and some more; returns what those are."""
    leaves: list[dict[str, Any]] = []
    for _attempt in range(3):
        bench.map_arena(arm, 1)
        drawn = bench.draw()
        assert drawn is not None
        slot = bench.run(arm, [drawn], [bench.seed()], timeout=bench.build_timeout, fit=False)
        leaves = slot.calls[0].leaves
        bench.forget([slot])
        for f in leaves:
            if f["kind"] == "tensor" and f["device"] not in ("cpu", bench.spec["device"]):
                raise TracksideError(
                    "workload",
                    f"the baseline's output {f['path']} is on {f['device']}; needed: "
                    f"{bench.spec['device']} or cpu",
                    "return outputs on the device that `inputs` was asked for",
                )
        wanted = room_for(sum(f.get("need", 0) for f in leaves))
        if wanted <= bench.output_bytes:
            break
        bench.output_bytes = wanted
    return leaves


def _prove_oracle(bench: Bench, arm: Arm, study: Study) -> None:
    """Whether the baseline repeats itself, what is expected of outputs, and how far its own lie from that."""
    first = bench.draw()
    assert first is not None
    seed, other = bench.seed(), bench.seed()
    slots = [bench.run(arm, [first], [s], timeout=bench.build_timeout) for s in (seed, seed, other)]
    calls = [slot.calls[0] for slot in slots]
    _check_repeats(bench, study, calls)
    _choose_oracle(bench, study, first, seed)
    _learn_condition(bench, study, first, seed)
    for call in calls[:2]:
        _take_in(bench, study, call)
    if study.narrowed and study.declared is not None:
        _expect_the_baselines_own(bench, study, first, seed)
        for call in calls[:2]:
            call.errors = None
            _take_in(bench, study, call)
    arithmetic = bench.ask("arithmetic", set=first, seed=seed)
    study.narrow, study.derives = arithmetic["narrow"], arithmetic["derives"]
    study.doubles = arithmetic["doubles"]
    _learn_narrow_rounding(bench, study, first, seed)
    _excuse_what_cancels(bench, study, first, seed)
    _judge_baseline(bench.ledger, study)
    study.run_ns = min(call.ns for call in calls)
    bench.forget(slots)


def _check_repeats(bench: Bench, study: Study, calls: list[Call]) -> None:
    """The first two calls had the same seed, the third another."""
    first, again, other = (call.id for call in calls)
    moved, drawn = (
        bench.ask("same_bytes", first=first, second=second, leaves=calls[0].leaves)
        for second in (again, other)
    )
    study.random = bool(drawn) and not moved
    study.unrepeated = moved
    if moved and _differ_beyond_rounding(bench, calls[0], calls[1]):
        bench.ledger.failed(
            "baseline-right",
            f"the baseline is not deterministic: on the same inputs and seed {moved['path']} element "
            f"{moved['element']} was {moved['was']}, then {moved['now']}; draw from torch's default "
            "generator, or from one that can be reached from what `setup` returns",
        )
        bench.ledger.settle()


def _choose_oracle(bench: Bench, study: Study, first: int, seed: int) -> None:
    """The widest arithmetic in which the baseline runs, or its own output where nothing wider would do."""
    ledger = bench.ledger
    proof: dict[str, Any] = (
        {"random": True} if study.random else bench.ask("prove_oracle", set=first, seed=seed)
    )
    if proof.get("kind") is not None:
        study.oracle = proof
        missing = [f["path"] for f in study.leaves if f["path"] not in proof["paths"]]
        if missing:
            ledger.failed(
                "oracle-available",
                f"`reference` gives no {missing[0]}, which `run` does: nothing would check it; return and "
                "change in `reference` what `run` does",
            )
        ledger.passed("oracle-available", f"{proof['kind']}, bits verified")
        return
    study.random = True
    bench.ask("use_baseline_as_oracle")
    if proof.get("random"):
        study.oracle = {"kind": "the baseline's own output under the same random seed"}
        ledger.passed(
            "oracle-available",
            "random operators: the baseline's output under the same seed is what is expected",
        )
        return
    study.oracle = {"kind": _ITS_OWN}
    notes = "; ".join(proof["notes"]) or "no reason given"
    if study.unrepeated:
        notes += f"; on the same inputs and seed {study.unrepeated['path']} differs from call to call"
    if study.declared is None:
        ledger.failed(
            "oracle-available",
            f"the baseline's code runs in no wider arithmetic ({notes}): add `reference` to its file",
        )
    else:
        ledger.warned(
            "oracle-available",
            f"checked against the baseline's own output under the declared tolerance ({notes})",
        )


def _expect_the_baselines_own(bench: Bench, study: Study, first: int, seed: int) -> None:
    """In place of an oracle that knows nothing of some output; what was learnt from it is forgotten."""
    why = next(iter(study.narrowed.values()))
    study.random, study.oracle, study.learned = True, {"kind": _ITS_OWN}, 0
    for learnt in (study.bins, study.whole_bins, study.nonfinite, study.narrowed):
        learnt.clear()
    bench.ask("use_baseline_as_oracle")
    _learn_condition(bench, study, first, seed)
    bench.ledger.warned(
        "oracle-available",
        f"checked against the baseline's own output under the declared tolerance ({why})",
    )


def _learn_condition(bench: Bench, study: Study, first: int, seed: int) -> None:
    """Where nothing is wider than the output the baseline's error reads as zero: take that of rounding."""
    blind = [f["path"] for f in study.leaves if _reads_as_exact(study, f["path"])]
    for doubles in {_is_double(study, path) for path in blind}:
        noise = {"set": first, "seed": seed, "times": 1, "output": "float64" if doubles else None}
        for leaf in bench.ask("condition", (), draws=1, seconds=0.0, **noise)["leaves"]:
            path = leaf["path"]
            # Noise that moves a random choice says nothing about rounding.
            stable = tolerance.relative_error(leaf["bins"])["rms"] < UNSTABLE
            if path in blind and _is_double(study, path) == doubles and stable:
                tolerance.merge(study.bins.setdefault(path, {}), leaf["bulk"])


def _reads_as_exact(study: Study, path: str) -> bool:
    """Whether what is expected of an output is no wider than the output itself."""
    return study.random or _is_double(study, path)


def _is_double(study: Study, path: str) -> bool:
    return dtype_of(study, path) in ("float64", "complex128")


def learn(bench: Bench, study: Study, call: Call) -> None:
    """Add a baseline call's errors to what is known of its accuracy, until enough is."""
    known = len(study.narrowed)
    _take_in(bench, study, call)
    if len(study.narrowed) > known:
        _judge_baseline(bench.ledger, study)


def _take_in(bench: Bench, study: Study, call: Call) -> None:
    if len(call.leaves) >= len(study.leaves):
        study.least_output_bytes = min(study.least_output_bytes, sum(map(bytes_held, call.leaves)))
    if study.random:
        bench.ask("adopt_answer", call=call.id, set=call.set, seed=call.seed, leaves=call.leaves)
    elif study.learned >= _ENOUGH_LEARNED:
        return
    study.learned += 1
    for leaf in bench.errors(call, bulk=True):
        if "bins" in leaf:
            known, blind = study.bins.setdefault(leaf["path"], {}), _reads_as_exact(study, leaf["path"])
            # Zeros would water down what noise has taught, the more the more calls are looked at.
            tells = {n: row for n, row in leaf["bulk"].items() if row[1] or not blind or n not in known}
            tolerance.merge(known, tells)
            tolerance.merge(study.whole_bins.setdefault(leaf["path"], {}), leaf["bins"])
            if leaf["nonfinite"]:
                study.nonfinite.add(leaf["path"])
    _note_small_parts(bench, study, call)
    if not study.random:
        _note_what_is_narrowed(bench, study, call)


def _note_small_parts(bench: Bench, study: Study, call: Call) -> None:
    """Outputs whose few small values lie together: what they are about is not what the large ones are."""
    below = {
        path: most
        for path, bins in study.bins.items()
        if path not in study.small_parts
        and (most := tolerance.may_be_anything_below(bins, dtype_of(study, path)))
    }
    if below:
        found = bench.ask("small_parts", set=call.set, seed=call.seed, below=below)
        study.small_parts.update(found["paths"])


def _note_what_is_narrowed(bench: Bench, study: Study, call: Call) -> None:
    """Outputs that tell what a narrow type does: a part that it loses, an overflow. The oracle has none."""
    differ = {leaf["path"] for leaf in bench.errors(call, bulk=True) if leaf.get("mismatches")}
    leaves = [f for f in call.leaves if f["path"] in differ and f["path"] not in study.narrowed]
    if leaves:
        found = bench.ask("out_of_reach", call=call.id, set=call.set, seed=call.seed, leaves=leaves)
        for path in found["paths"]:
            study.narrowed[path] = f"the baseline's {path} is what no inputs beside give in its oracle"
    for path, bins in study.whole_bins.items():
        if any(row[2] for row in bins.values()) and not any(row[3] for row in bins.values()):
            study.narrowed[path] = f"the baseline's {path} is not zero, and in its oracle zero everywhere"


def _differ_beyond_rounding(bench: Bench, one: Call, other: Call) -> bool:
    bench.ask("adopt_answer", call=one.id, set=one.set, seed=one.seed, leaves=one.leaves)
    answer = bench.ask(
        "check", call=other.id, set=other.set, seed=other.seed, leaves=other.leaves, bulk=False
    )
    return any(
        bool(leaf.get("mismatches")) or tolerance.relative_error(leaf.get("bins", {}))["rms"] > UNSTABLE
        for leaf in answer["leaves"]
    )


def oracle_is_finite(bench: Bench, study: Study, set_id: int, seed: int, limit: float = 0.0) -> bool:
    """Whether what is expected on a set is finite in the types in which outputs come.

    With a `limit` an oracle that takes so many seconds, and many times longer than before, is ended.
    """
    dtypes = {
        f["path"]: f["dtype"] if f["kind"] == "tensor" else plain_dtype(study, study.bins.get(f["path"], {}))
        for f in study.leaves
        if f["kind"] in ("tensor", "value")
    }
    return bool(bench.ask("answer", set=set_id, seed=seed, dtypes=dtypes, seconds=limit)["finite"])


def _excuse_what_cancels(bench: Bench, study: Study, first: int, seed: int) -> None:
    """Note outputs that are zero but for rounding, in the baseline as in its oracle.

    The gradient of a bias right before a norm, or of the keys in attention, is: one times nothing is as right
    as another.
    """
    if study.random:
        _excuse_what_is_rounding(bench, study, first, seed)
        return
    broken = [path for path in study.bins if _is_broken(study, path)]
    if not broken:
        return
    for path, rms in bench.ask("roundings", set=first, seed=seed, paths=broken)["rms"].items():
        mine = tolerance.error(study.whole_bins[path])
        if mine <= tolerance.legal_factor(dtype_of(study, path)) * rms:
            study.cancelled[path] = max(mine, rms)


def _excuse_what_is_rounding(bench: Bench, study: Study, first: int, seed: int) -> None:
    """The same where the baseline's own output is what is expected: rounding makes another one of it."""
    times = 1 if study.narrow else _ROUNDED_INSIDE
    noise: dict[str, Any] = {"set": first, "seed": seed, "times": times, "output": None}
    noise |= {"draws": _NOISY_DRAWS, "seconds": _NOISY_SECONDS}
    moved: dict[str, list[dict[str, float]]] = {}
    for leaf in bench.ask("condition", (), **noise)["leaves"]:
        size = tolerance.relative_error(leaf["bins"])["rms"]
        moved.setdefault(leaf["path"], []).append({"share": size, "rms": tolerance.error(leaf["bins"])})
    for path, rows in moved.items():
        # In every draw: a random choice that rounding moves now and then is something.
        if path in study.bins and min(row["share"] for row in rows) >= _NOTHING_BUT_ROUNDING:
            study.cancelled[path] = max(row["rms"] / min(1.0, row["share"]) for row in rows)


def _learn_narrow_rounding(bench: Bench, study: Study, first: int, seed: int) -> None:
    if study.narrow and any(_is_broken(study, path) for path in study.bins):
        noise: dict[str, Any] = {"set": first, "seed": seed, "times": 1, "output": None}
        noise |= {"draws": _NOISY_DRAWS, "seconds": _NOISY_SECONDS}
        for leaf in bench.ask("condition", (), **noise)["leaves"]:
            moved = tolerance.relative_error(leaf["bins"])["rms"]
            study.rounded[leaf["path"]] = max(study.rounded.get(leaf["path"], 0.0), moved)


def _is_broken(study: Study, path: str) -> bool:
    """Whether the baseline does not compute what its oracle says; bytes hold nothing more exact.

    Narrow types route a row elsewhere than the oracle now and then: so few jumps are not what it computes.
    """
    bins = study.whole_bins.get(path, study.bins[path])
    error = tolerance.relative_error(study.bins[path] if study.narrow else bins)["rms"]
    legal = tolerance.legal_factor(dtype_of(study, path), study.narrow, bins)
    most = max(BROKEN, legal * study.rounded.get(path, 0.0))
    return error > most and dtype_of(study, path) not in ("float8_e4m3fn", "float8_e5m2")


def _judge_baseline(ledger: Ledger, study: Study) -> None:
    for why in study.narrowed.values():
        ledger.failed(
            "baseline-right",
            f"{why} ({study.oracle['kind']}): it seems to tell what a narrow type rounds or cannot hold; "
            "declare `tolerance` in the baseline's file, and the baseline's own output is what is expected",
        )
        return
    for path, bins in study.bins.items():
        if path in study.cancelled:
            continue
        dtype = dtype_of(study, path)
        if _is_broken(study, path):
            error = tolerance.relative_error(study.whole_bins.get(path, bins))["rms"]
            ledger.failed(
                "baseline-right",
                f"the baseline's {path} differs from its oracle ({study.oracle['kind']}) by "
                f"{error:.1%} rms: repair `run` or `reference`",
            )
            return
        error = tolerance.relative_error(bins)["rms"]
        if study.narrow and error > tolerance.VISIBLY_NARROW and dtype == "float32":
            ledger.warned(
                "baseline-right",
                f"the baseline's float32 output {path} has {error:.1e} rms error: it runs in a "
                "narrower type, so the candidate may too",
            )
    ledger.passed("baseline-right", "the baseline agrees with its oracle")


def _learn_lifetime(bench: Bench, arm: Arm, study: Study) -> None:
    """Whether the baseline itself hands out one buffer again and again."""
    if study.facts["outputs"] == "until_next_call":
        study.reuses_outputs = True
        return
    found = kept_outputs_change(bench, arm, AUDIT_SLOTS)
    study.reuses_outputs = found is not None
