"""Everything checked before a clock matters: what the baseline does, whether the candidate does it too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trackside.comparison import tolerance
from trackside.comparison.bench import BASELINE, CANDIDATE, Arm, Bench, Call, Slot
from trackside.comparison.checks import Ledger
from trackside.comparison.probe_kinds import PROBES
from trackside.comparison.tolerance import Bins
from trackside.records.errors import TracksideError

__all__ = ["AUDIT_SLOTS", "Study", "audit_candidate", "check_call", "probe", "study_baseline", "suspicious"]

AUDIT_SLOTS = 3
# Outputs held at once when looking for a ring of shared buffers: as many as memory and a second allow.
_MOST_RETAINED, _RETAINED_BYTES, _RETAINED_NS = 24, 2 << 30, 1e9
# How long a deferred write has to show itself, in seconds.
_LATE = 0.05
# Baseline calls after which its error per bin is known well enough; each costs as much as a check.
_ENOUGH_LEARNED = 12
# Beyond this rms error the baseline does not compute what its oracle says, in any precision.
_BROKEN = 0.05
# Beyond this a float32 baseline visibly runs in a narrower type (TF32 makes about 3e-4).
_NARROWED = 1e-5
# Two runs on the same inputs that differ by more than rounding makes anything of the candidate's a guess.
_UNSTABLE = 0.02


@dataclass
class Study:
    """What the baseline's calls have taught: its outputs, contract, errors and speed."""

    facts: dict[str, Any]
    leaves: list[dict[str, Any]] = field(default_factory=list)
    bins: dict[str, Bins] = field(default_factory=dict)
    nonfinite: set[str] = field(default_factory=set)
    oracle: dict[str, Any] = field(default_factory=dict)
    random: bool = False
    reuses_outputs: bool = False
    declared: dict[str, float] | None = None
    run_ns: float = 0.0
    enqueue_ns: float = 0.0
    build_seconds: float = 0.0
    candidate_bins: dict[str, Bins] = field(default_factory=dict)
    learned: int = 0
    checked: int = 0
    screened: int = 0
    flags: dict[str, Any] = field(default_factory=dict)
    state_paths: dict[str, Any] = field(default_factory=dict)
    probes: dict[str, str] = field(default_factory=dict)
    insensitive: list[str] = field(default_factory=list)

    @property
    def retained(self) -> int:
        """How many outputs the audit holds at once."""
        room = _RETAINED_BYTES // max(1, self.output_bytes)
        return int(max(AUDIT_SLOTS, min(_MOST_RETAINED, room, _RETAINED_NS / max(self.run_ns, 1.0))))

    @property
    def output_bytes(self) -> int:
        return sum(f["span"] for f in self.leaves if f["kind"] == "tensor")


# -- the baseline ------------------------------------------------------------------------------------


def study_baseline(
    bench: Bench, path: Any, format: str, facts: dict[str, Any], setup_seed: int, timeout: float
) -> Study:
    """Run the baseline alone until its outputs, contract, oracle and speed are known."""
    study = Study(facts)
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
    before = bench.tell(arm, "state_back", 60)["digests"]
    slot = bench.run(arm, [first], [bench.seed()], timeout=bench.build_timeout)
    bench.tell(arm, "inputs_back", 60, slot=0)
    changed = bench.ask("inputs_changed", arm=BASELINE, slot=0, set=first)["changed"]
    after = bench.tell(arm, "state_back", 60)["digests"]
    moved = [path for path in after if after[path] != before.get(path)]
    bench.contract = {"inputs": sorted(int(i) for i in changed), "state": moved, "restore": bool(moved)}
    study.state_paths = before
    bench.forget([slot])
    # The state was used: make it anew, so that restoring means the state that `setup` gave.
    bench.tell(arm, "setup", bench.build_timeout, seed=setup_seed)
    bench.ask("contract", **bench.contract)
    for _attempt in range(3):
        bench.map_arena(arm, 1)
        second = bench.draw()
        assert second is not None
        slot = bench.run(arm, [second], [bench.seed()], timeout=bench.build_timeout)
        study.leaves = slot.calls[0].leaves
        bench.forget([slot])
        if all(f.get("copied", True) for f in study.leaves):
            break
        for f in study.leaves:
            if f["kind"] == "tensor" and f["device"] not in ("cpu", bench.spec["device"]):
                raise TracksideError(
                    "workload",
                    f"the baseline's output {f['path']} is on {f['device']}; needed: "
                    f"{bench.spec['device']} or cpu",
                    "return outputs on the device that `inputs` was asked for",
                )
        # Twice the baseline's need leaves room for an honest candidate's padding and strides.
        bench.output_bytes = 2 * sum(f.get("need", 0) for f in study.leaves) + (1 << 16)
    for f in study.leaves:
        if f["kind"] not in ("tensor", "value"):
            raise TracksideError(
                "workload",
                f"the baseline's output {f['path'] or 'out'} is a {f['kind']}; needed: tensors and "
                "plain values, nested in tuples, lists and dicts",
                "return tensors from `run`",
            )
    if not any(f["kind"] == "tensor" or isinstance(f.get("value"), dict) for f in study.leaves):
        raise TracksideError(
            "workload",
            "the baseline returns nothing and changes nothing: there is no output to check",
            "return the result from `run`, or change an input or the state in place",
        )


def _prove_oracle(bench: Bench, arm: Arm, study: Study) -> None:
    ledger, first = bench.ledger, bench.draw()
    assert first is not None
    seed, other = bench.seed(), bench.seed()
    slots = [bench.run(arm, [first], [s], timeout=bench.build_timeout) for s in (seed, seed, other)]
    same = bench.ask(
        "same_bytes", first=slots[0].calls[0].id, second=slots[1].calls[0].id, leaves=study.leaves
    )
    third = bench.ask(
        "same_bytes", first=slots[0].calls[0].id, second=slots[2].calls[0].id, leaves=study.leaves
    )
    study.random = bool(third) and not same
    if same and _differ_beyond_rounding(bench, slots[0].calls[0], slots[1].calls[0]):
        ledger.failed(
            "baseline-right",
            f"the baseline is not deterministic: on the same inputs and seed {same['path']} element "
            f"{same['element']} was {same['was']}, then {same['now']}; draw from torch's generator",
        )
        ledger.settle()
    if study.random:
        bench.ask("use_baseline_as_oracle")
        study.oracle = {
            "kind": "the baseline's own output under the same random seed",
            "precision": None,
            "notes": [],
        }
        ledger.passed(
            "oracle-available",
            "random operators: the baseline's output under the same seed is what is expected",
        )
    else:
        proof = bench.ask("prove_oracle", set=first, seed=seed)
        study.oracle.update(proof)
        if proof.get("random"):
            study.random = True
            bench.ask("use_baseline_as_oracle")
            study.oracle["kind"] = "the baseline's own output under the same random seed"
            ledger.passed(
                "oracle-available",
                "random operators: the baseline's output under the same seed is what is expected",
            )
        elif proof["kind"] is None:
            study.random = True
            bench.ask("use_baseline_as_oracle")
            study.oracle["kind"] = "the baseline's own output"
            notes = "; ".join(proof["notes"]) or "no reason given"
            if study.declared is None:
                ledger.failed(
                    "oracle-available",
                    f"the baseline's code runs in no wider arithmetic ({notes}): add `reference` to "
                    "the baseline file",
                )
            else:
                ledger.warned(
                    "oracle-available",
                    f"checked against the baseline's own output under the declared tolerance ({notes})",
                )
        else:
            ledger.passed("oracle-available", f"{proof['kind']}, bits verified")
    _learn_condition(bench, study, first, seed)
    for slot in slots[:2]:
        learn(bench, study, slot.calls[0])
    _judge_baseline(ledger, study)
    study.run_ns = min(s.calls[0].ns for s in slots)
    bench.forget(slots)


def _learn_condition(bench: Bench, study: Study, first: int, seed: int) -> None:
    """Where nothing is wider than the output the baseline's error reads as zero: take that of input noise."""
    for leaf in bench.ask("condition", set=first, seed=seed)["leaves"]:
        narrow = study.random or _dtype_of(study, leaf["path"]) == "float64"
        # Noise that moves a random choice says nothing about rounding.
        if narrow and tolerance.relative_error(leaf["bins"])["rms"] < _UNSTABLE:
            tolerance.merge(study.bins.setdefault(leaf["path"], {}), leaf["bins"])


def learn(bench: Bench, study: Study, call: Call) -> None:
    """Add a baseline call's errors to what is known of its accuracy, until enough is."""
    if study.random:
        bench.ask("adopt_answer", call=call.id, set=call.set, seed=call.seed, leaves=call.leaves)
    elif study.learned >= _ENOUGH_LEARNED:
        return
    study.learned += 1
    for leaf in bench.ask("check", call=call.id, set=call.set, seed=call.seed, leaves=call.leaves)["leaves"]:
        if "bins" in leaf:
            tolerance.merge(study.bins.setdefault(leaf["path"], {}), leaf["bins"])
            if leaf["nonfinite"]:
                study.nonfinite.add(leaf["path"])


def _differ_beyond_rounding(bench: Bench, one: Call, other: Call) -> bool:
    bench.ask("adopt_answer", call=one.id, set=one.set, seed=one.seed, leaves=one.leaves)
    answer = bench.ask("check", call=other.id, set=other.set, seed=other.seed, leaves=other.leaves)
    return any(
        bool(leaf.get("mismatches")) or tolerance.relative_error(leaf.get("bins", {}))["rms"] > _UNSTABLE
        for leaf in answer["leaves"]
    )


def _dtype_of(study: Study, path: str) -> str:
    return next(
        (str(f["dtype"]) for f in study.leaves if f["path"] == path and f["kind"] == "tensor"), "float32"
    )


def _judge_baseline(ledger: Ledger, study: Study) -> None:
    for path, bins in study.bins.items():
        error = tolerance.relative_error(bins)["rms"]
        dtype = next(
            (f["dtype"] for f in study.leaves if f["path"] == path and f["kind"] == "tensor"), "float32"
        )
        if error > _BROKEN and dtype not in ("float8_e4m3fn", "float8_e5m2"):
            ledger.failed(
                "baseline-right",
                f"the baseline's {path} differs from its oracle ({study.oracle['kind']}) by "
                f"{error:.1%} rms: repair `run` or `reference`",
            )
            return
        if error > _NARROWED and dtype == "float32":
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
    found = _kept_outputs_change(bench, arm, AUDIT_SLOTS)
    study.reuses_outputs = found is not None


def _kept_outputs_change(bench: Bench, arm: Arm, count: int) -> dict[str, Any] | None:
    sets = bench.draw_many(count)
    slot = bench.run(arm, sets, [bench.seed() for _ in sets], keep=True, timeout=bench.build_timeout)
    found = _changes_later(bench, arm, slot)
    bench.forget([slot])
    return found


def _changes_later(bench: Bench, arm: Arm, slot: Slot) -> dict[str, Any] | None:
    answer = bench.tell(arm, "again", arm.call_timeout + 10, seconds=_LATE)
    if answer.get("overwritten"):
        return {"graph": True}
    graphs = answer.get("graphs") is True
    again = [bench.id() for _ in slot.calls]
    sizes = [max((f["offset"] + f["span"] for f in c.leaves if "offset" in f), default=0) for c in slot.calls]
    bench.ask("take", arm=arm.name, slots=list(range(len(again))), calls=again, bytes=sizes)
    found = None
    for index, (call, second) in enumerate(zip(slot.calls, again, strict=True)):
        differs = bench.ask("same_bytes", first=call.id, second=second, leaves=call.leaves)
        if differs and found is None:
            found = {"call": index, **differs}
    bench.ask("forget", sets=[], calls=again)
    last = len(slot.calls) - 1
    if found is not None and found["call"] < last and graphs:
        return {"graph": True}
    return found


# -- the candidate -----------------------------------------------------------------------------------


def audit_candidate(
    bench: Bench,
    path: Any,
    format: str,
    study: Study,
    setup_seed: int,
    timeout: float,
    state_file: str | None,
) -> Arm:
    """Untimed calls that must be right before timing starts.

    Raises:
        Stop: as soon as something is proved wrong.
    """
    ledger = bench.ledger
    held = study.retained
    arm = bench.start(CANDIDATE, path, format, 0, setup_seed, AUDIT_SLOTS, timeout)
    _report_isolation(ledger, arm)
    match_parameters(bench, arm, study, state_file)
    before = bench.tell(arm, "state_back", 60)["digests"]
    # The first call may compile, so it has the build's time; its output is checked like any other.
    _audit_calls(bench, arm, study, 1, poison=False)
    _audit_calls(bench, arm, study, AUDIT_SLOTS, poison=True)
    sets = bench.draw_many(AUDIT_SLOTS)
    slot = bench.run(arm, sets, [bench.seed() for _ in sets], keep=True, repeat=held - AUDIT_SLOTS)
    _check_kept(bench, arm, study, slot)
    bench.forget([slot])
    # Once more after all those: who is honest in the first calls only has had them.
    _audit_calls(bench, arm, study, AUDIT_SLOTS, poison=True)
    ledger.passed("late-writes", f"{held} outputs held and read again after {_LATE * 1e3:.0f} ms: unchanged")
    ledger.passed("output-reuse", "earlier outputs survive later calls")
    after = bench.tell(arm, "state_back", 60)["digests"]
    _check_state(bench, study, before, after)
    check_environment(bench, arm, study)
    return arm


def _audit_calls(bench: Bench, arm: Arm, study: Study, count: int, poison: bool) -> None:
    """Calls on fresh inputs beside the baseline's: outputs, inputs, and outputs again a little later."""
    sets, seeds = bench.draw_many(count), [bench.seed() for _ in range(count)]
    expected = bench.run(bench.arms[BASELINE], sets, seeds)
    slot = bench.run(
        arm, sets, seeds, keep=True, poison=poison, timeout=None if poison else bench.build_timeout
    )
    _no_hooks(bench.ledger, slot)
    for call, standard in zip(slot.calls, expected.calls, strict=True):
        learn(bench, study, standard)
        check_call(bench, study, call, standard)
    bench.tell(arm, "inputs_back", 60, slot=count - 1)
    check_inputs(bench, arm, count - 1, sets[-1])
    _check_kept(bench, arm, study, slot)
    bench.forget([slot, expected])


def match_parameters(bench: Bench, arm: Arm, study: Study, state_file: str | None) -> None:
    """See that both arms hold the same parameter values, where these come from constructors (KernelBench)."""
    if study.facts["format"] != "kernelbench":
        bench.ledger.not_applicable("parameters-match", "parameters come from `setup` or there are none")
        return
    mine = bench.tell(arm, "parameters", 120)["digest"]
    theirs = study.facts["digest"]
    if mine == theirs or (mine and theirs and mine["digest"] == theirs["digest"]):
        bench.ledger.passed("parameters-match", "same values under one seed")
        return
    if state_file is not None and bench.tell(arm, "adopt", 120, path=state_file)["adopted"]:
        bench.ledger.passed("parameters-match", "names match: the baseline's values were loaded")
        return
    bench.ledger.failed(
        "parameters-match",
        "the candidate's parameters are neither the baseline's values nor named like them: outputs "
        "cannot be compared",
    )


def _report_isolation(ledger: Ledger, arm: Arm) -> None:
    missing = arm.process.facts.get("isolation", {}).get("missing", ["unknown"])
    if missing:
        ledger.warned("isolation", "not available here: " + "; ".join(str(m) for m in missing))
    else:
        ledger.passed("isolation", "user and network namespace, file and signal limits")


def _no_hooks(ledger: Ledger, slot: Slot) -> None:
    if slot.hooks:
        ledger.failed(
            "harness-intact",
            f"the candidate left {', '.join(slot.hooks)} installed: it runs inside the harness's own code",
        )


def check_inputs(bench: Bench, arm: Arm, slot: int, set_id: int) -> None:
    changed = bench.ask("inputs_changed", arm=arm.name, slot=slot, set=set_id)["changed"]
    extra = [i for i in changed if int(i) not in bench.contract["inputs"]]
    if extra:
        seen = changed[extra[0]]
        bench.ledger.failed(
            "inputs-unchanged",
            f"input {extra[0]}, element {seen['element']}: was {seen['was']}, is {seen['now']} "
            "after the call",
        )
    bench.ledger.passed(
        "inputs-unchanged",
        "bit-identical after the call"
        if not bench.contract["inputs"]
        else "only what the baseline changes was changed",
    )


def _check_kept(bench: Bench, arm: Arm, study: Study, slot: Slot) -> None:
    """Outputs that were kept must still be what was returned."""
    changed = _changes_later(bench, arm, slot)
    if changed is None:
        return
    if changed.get("graph"):
        bench.ledger.warned(
            "output-reuse", "CUDA-graph outputs of torch.compile: certified as valid until the next call"
        )
        return
    where = (
        f"call {changed['call']}, {changed['path']}, element {changed['element']}: was "
        f"{changed['was']}, later {changed['now']}"
    )
    if changed["call"] == len(slot.calls) - 1:
        bench.ledger.failed("late-writes", f"an output changed after it was returned: {where}")
    elif study.reuses_outputs:
        bench.ledger.warned("output-reuse", "outputs are valid until the next call, as the baseline's are")
    else:
        bench.ledger.failed("output-reuse", f"a later call overwrote an earlier output: {where}")


def _check_state(bench: Bench, study: Study, before: dict[str, Any], after: dict[str, Any]) -> None:
    if not bench.contract["restore"]:
        shared = [p for p in study.state_paths if p in before]
        changed = [p for p in shared if before[p] != after.get(p)]
        if changed:
            bench.ledger.failed("state-matches", f"state {changed[0]} changed; the baseline leaves it alone")
    bench.ledger.passed("state-matches", "state is left as the baseline leaves it")


# Switches that a worker's pinning decides, reported elsewhere; and ones that only describe.
def check_environment(bench: Bench, arm: Arm, study: Study) -> None:
    """Same global switches in both arms, and the harness's functions untouched."""
    facts = bench.tell(arm, "facts", 60)
    if facts["replaced"]:
        bench.ledger.failed("harness-intact", f"the candidate replaced {', '.join(facts['replaced'][:5])}")
    if facts["hooks"]:
        bench.ledger.failed("harness-intact", f"the candidate left {', '.join(facts['hooks'])} installed")
    bench.ledger.passed("harness-intact", "no modes, no hooks, timing functions are the originals")
    arm.flags = facts["flags"]
    differ = [
        f"{name}: baseline {study.flags.get(name)}, candidate {value}"
        for name, value in facts["flags"].items()
        if study.flags.get(name) != value
    ]
    if differ:
        bench.ledger.failed("environment-same", "; ".join(differ))
    else:
        bench.ledger.passed("environment-same", "same flags, threads, affinity and versions")


# -- one call ----------------------------------------------------------------------------------------


def check_call(
    bench: Bench,
    study: Study,
    call: Call,
    standard: Call,
    check: str = "output-matches-oracle",
    label: str = "",
) -> None:
    """Structure, aliasing and accuracy of one candidate call, beside the baseline's on the same inputs."""
    name = label or f"call {call.id}"
    _check_structure(bench.ledger, call, standard, name)
    answers = bench.ask("check", call=call.id, set=call.set, seed=call.seed, leaves=call.leaves)["leaves"]
    for fact, leaf in zip(call.leaves, answers, strict=True):
        _check_leaf(bench, study, call, standard, fact, leaf, check, name)
    study.checked += 1


def suspicious(bench: Bench, study: Study, call: Call, standard: Call) -> bool:
    """Whether a candidate call lies so far from the baseline's on the same inputs that the oracle must look.

    Both may be off the oracle, the candidate by its allowance and the baseline by a quarter of that at most;
    what lies further apart is for the oracle to judge. What is structured otherwise is suspicious too.
    """
    mine, theirs = (
        [(f["path"], _word(f), f.get("alias"), f.get("copied", True)) for f in c.leaves]
        for c in (call, standard)
    )
    if mine != theirs:
        return True
    answer = bench.ask(
        "screen", call=call.id, other=standard.id, leaves=call.leaves, other_leaves=standard.leaves
    )
    study.screened += 1
    for leaf in answer["leaves"]:
        if leaf.get("same"):
            continue
        if leaf.get("mismatches") or leaf.get("nonfinite"):
            return True
        allowances = tolerance.allow(study.bins.get(leaf["path"], {}), leaf["dtype"], study.declared)
        wider = {n: tolerance.Allowance(1.25 * a.rms, 1.25 * a.largest) for n, a in allowances.items()}
        if any(n not in wider for n in leaf["bins"]) or tolerance.exceeds(leaf["bins"], wider) is not None:
            return True
    return False


def _check_structure(ledger: Ledger, call: Call, standard: Call, name: str) -> None:
    mine, theirs = {f["path"]: f for f in call.leaves}, {f["path"]: f for f in standard.leaves}
    missing = [p for p in theirs if p not in mine]
    if missing:
        check = (
            "state-matches"
            if missing[0].startswith("state:") or missing[0].endswith(".grad")
            else "output-structure"
        )
        ledger.failed(check, f"{name}: {missing[0]} is missing; the baseline has {_word(theirs[missing[0]])}")
    extra = [p for p in mine if p not in theirs]
    if extra:
        ledger.failed(
            "output-structure",
            f"{name}: {extra[0]} is {_word(mine[extra[0]])}; the baseline has no such output",
        )
    for path, fact in mine.items():
        other = theirs.get(path)
        if other is None:
            continue
        if _word(fact) != _word(other):
            ledger.failed(
                "output-structure", f"{name}: {path} is {_word(fact)}; the baseline's is {_word(other)}"
            )
            continue
        if fact["kind"] != "tensor":
            continue
        for problem in _memory_problems(fact, other):
            ledger.failed("output-structure", f"{name}: {path} {problem}")
        if fact.get("alias") != other.get("alias"):
            ledger.failed(
                "aliasing",
                f"{name}: {path} shares memory with {fact.get('alias') or 'nothing'}; the "
                f"baseline's with {other.get('alias') or 'nothing'}",
            )
    ledger.passed("output-structure", "same nesting, types, dtypes, shapes and device")
    ledger.passed("aliasing", "shares memory where the baseline's does")


def _memory_problems(fact: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    if _overlaps(fact) and not _overlaps(other):
        yield f"is a view with strides {fact['stride']}: several elements share one place in memory"
    if not fact.get("copied", True):
        yield f"could not be read: it spans {fact['span']:,} bytes, the baseline's {other['span']:,}"


def _overlaps(fact: dict[str, Any]) -> bool:
    return any(n > 1 and s == 0 for n, s in zip(fact["shape"], fact["stride"], strict=True))


def _word(fact: dict[str, Any]) -> str:
    if fact["kind"] == "tensor":
        return f"{fact['dtype']}{fact['shape']} on {fact['device']}"
    if fact["kind"] == "value":
        value = fact["value"]
        return "a float" if isinstance(value, dict) else f"the {type(value).__name__} {value!r}"
    return f"a {fact['kind']}"


def _check_leaf(
    bench: Bench,
    study: Study,
    call: Call,
    standard: Call,
    fact: dict[str, Any],
    leaf: dict[str, Any],
    check: str,
    name: str,
) -> None:
    path = leaf["path"]
    failing: Callable[..., None] = bench.ledger.failed
    if check == "output-matches-oracle" and path.startswith("state:"):
        check = "state-matches"
    if leaf.get("missing"):
        return
    if "mismatches" in leaf:
        if leaf["mismatches"] and leaf["dtype"] not in ("value", "shape"):
            rows = bench.ask(
                "check_integers",
                call=call.id,
                set=call.set,
                seed=call.seed,
                leaves=[fact],
                baseline_call=standard.id,
                baseline_leaves=[next(f for f in standard.leaves if f["path"] == path)],
            )["leaves"]
            leaf = rows[0] if rows else leaf
        if leaf["mismatches"]:
            failing(
                check,
                f"{name}, {path}{leaf['at']}: expected {leaf['expected']}, found {leaf['found']} "
                f"({leaf['mismatches']:,} elements differ)",
            )
        return
    if leaf["nonfinite"] and path not in study.nonfinite:
        failing(
            check,
            f"{name}, {path} element {leaf['nonfinite_at']}: expected {leaf['expected']}, found "
            f"{leaf['found']} ({leaf['nonfinite']:,} NaN or infinities out of place)",
        )
        return
    base = study.bins.get(path, {})
    dtype = leaf["dtype"]
    if check == "holds-on-probes":
        base = _probe_errors(bench, study, standard, path)
    allowances = tolerance.allow(base, dtype, study.declared)
    # A bin that no baseline call has met is judged by the nearest that one has.
    for number in leaf["bins"]:
        if number not in allowances and allowances:
            allowances[number] = allowances[min(allowances, key=lambda k, n=number: abs(int(k) - int(n)))]  # type: ignore[misc]
    worst = tolerance.exceeds(leaf["bins"], allowances)
    if worst is not None:
        limits = {number: min(a.largest, a.rms * 3) for number, a in allowances.items()}
        spot = bench.ask("locate", call=call.id, set=call.set, seed=call.seed, leaf=fact, allowed=limits)
        mine, theirs = tolerance.relative_error(leaf["bins"]), tolerance.relative_error(base)
        failing(
            check,
            f"{name}, {path}{spot['index']}: expected {_digits(spot['expected'])}, found "
            f"{_digits(spot['found'])} "
            f"(error {worst[1]:,.1f} times what is allowed; rms {mine['rms']:.1e} against the "
            f"baseline's {theirs['rms']:.1e})",
            index=spot["index"],
            expected=spot["expected"],
            found=spot["found"],
            call=call.id,
        )
        return
    if check in ("output-matches-oracle", "state-matches"):
        tolerance.merge(study.candidate_bins.setdefault(path, {}), leaf["bins"])


def _probe_errors(bench: Bench, study: Study, standard: Call, path: str) -> Bins:
    """A probe's scale is its own: errors of the baseline there, and of half an ulp of noise on its inputs."""
    base: Bins = {}
    on = {"set": standard.set, "seed": standard.seed}
    rows = bench.ask("check", (), call=standard.id, leaves=standard.leaves, **on)["leaves"]
    rows += bench.ask("condition", (), **on)["leaves"]
    for row in rows:
        if row["path"] == path and "bins" in row:
            tolerance.merge(base, row["bins"])
    return base


def _digits(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)


# -- probes ------------------------------------------------------------------------------------------


def probe(bench: Bench, study: Study) -> None:
    """Inputs off the beaten distribution, and whether lazy answers would be told apart anywhere."""
    base, cand = bench.arms[BASELINE], bench.arms[CANDIDATE]
    ran = []
    insensitive = _insensitive(bench, study)
    for kind in PROBES:
        sample = bench.draw()
        assert sample is not None
        made = bench.draw(kind, sample)
        if made is None:
            study.probes[kind] = "not applicable: the inputs' structure or domain rules it out"
            continue
        seed = bench.seed()
        if not study.random and not bench.ask("answer", set=made, seed=seed)["finite"]:
            study.probes[kind] = "not counted: the oracle is not finite there"
            continue
        expected = bench.run(base, [made], [seed])
        if not _baseline_passes(bench, study, expected.calls[0]):
            study.probes[kind] = "not counted: the baseline itself fails there"
            bench.forget([expected])
            continue
        # The sample goes first: whoever keeps answers by a fingerprint has one now that fits the bent set.
        slot = bench.run(cand, [sample, made], [seed, seed])
        check_call(bench, study, slot.calls[1], expected.calls[0], "holds-on-probes", f"probe `{kind}`")
        bench.forget([slot, expected])
        ran.append(kind)
        study.probes[kind] = "passed"
    if ran:
        bench.ledger.passed("holds-on-probes", f"right on {len(ran)} probes: {', '.join(ran)}")
    else:
        bench.ledger.unknown("holds-on-probes", "no probe could be made from these inputs")
    if insensitive:
        study.insensitive = insensitive
        bench.ledger.warned(
            "task-is-sensitive",
            f"on these inputs {', '.join(insensitive)} would pass too: the task itself hardly tests the code",
        )
    else:
        bench.ledger.passed(
            "task-is-sensitive", "zeros, a constant and a stale answer would all be told apart"
        )


def _baseline_passes(bench: Bench, study: Study, call: Call) -> bool:
    if study.random:
        bench.ask("adopt_answer", call=call.id, set=call.set, seed=call.seed, leaves=call.leaves)
        return True
    for leaf in bench.ask("check", call=call.id, set=call.set, seed=call.seed, leaves=call.leaves)["leaves"]:
        if leaf.get("nonfinite") or leaf.get("missing"):
            return False
        if "bins" in leaf and tolerance.relative_error(leaf["bins"])["rms"] > _BROKEN:
            return False
    return True


def _insensitive(bench: Bench, study: Study) -> list[str]:
    if study.random:
        return []
    first, second, seed = bench.draw(), bench.draw(), bench.seed()
    leaves = bench.ask("sensitivity", set=first, stale=second, seed=seed)["leaves"]
    bench.ask("forget", sets=[first, second], calls=[])
    passing: list[str] = []
    for lazy in ("zeros", "constant", "stale"):
        tried = [leaf for leaf in leaves if lazy in leaf["lazy"]]
        if tried and all(_would_pass(study, leaf["path"], leaf["lazy"][lazy]) for leaf in tried):
            passing.append(lazy)
    return passing


def _would_pass(study: Study, path: str, bins: Bins) -> bool:
    dtype = _dtype_of(study, path)
    allowances = tolerance.allow(study.bins.get(path, {}), dtype, study.declared)
    return (
        bool(allowances)
        and all(n in allowances for n in bins)
        and tolerance.exceeds(bins, allowances) is None
    )
