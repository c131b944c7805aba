"""The candidate's untimed calls: everything that must hold before a clock matters."""

from __future__ import annotations

import math
import signal
import time
from typing import Any

from trackside.comparison.arms import BASELINE, CANDIDATE, Arm, Call, Slot
from trackside.comparison.baseline import learn
from trackside.comparison.bench import Bench
from trackside.comparison.checks import Ledger
from trackside.comparison.lifetime import LATE, changes_later
from trackside.comparison.outputs import check_call, check_changed_inputs
from trackside.comparison.study import AUDIT_SLOTS, Study

__all__ = [
    "audit_candidate",
    "check_environment",
    "check_inputs",
    "check_kept",
    "check_signals",
    "check_state",
    "match_parameters",
    "nearest_leaves",
    "watch_state",
]

# What a helper needs to go to sleep, how long the baseline then runs, and from when on one is busy.
_HELPERS_REST, _HELPERS_WATCHED_NS, _BUSY_SHARE = 0.05, 150_000_000, 0.2
# Switches that no operator on a CPU looks at, and that many a script sets at its top.
_CUDA_ONLY = frozenset(
    {
        "cudnn.allow_tf32",
        "cudnn.benchmark",
        "cudnn.enabled",
        "matmul.allow_fp16_reduced_precision_reduction",
        "matmul.allow_bf16_reduced_precision_reduction",
        "matmul.allow_fp16_accumulation",
    }
)


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
    # Beside other weights every output is wrong, and says nothing.
    ledger.settle()
    before = bench.tell(arm, "state_back", 60)["digests"]
    study.shared_state = _shared(study.state_paths, before)
    if any(path not in before for path in bench.contract["state"]):
        _learn_names(bench, arm, study, before)
    # The first call may compile, so it has the build's time; its output is checked like any other.
    _audit_calls(bench, arm, study, 1, poison=False)
    _check_helpers(bench, arm)
    ledger.settle()
    # Who captured where the first inputs lay meets the others elsewhere.
    bench.tell(arm, "move", 60)
    _audit_calls(bench, arm, study, AUDIT_SLOTS, poison=True)
    sets = bench.draw_many(AUDIT_SLOTS)
    slot = bench.run(arm, sets, [bench.seed() for _ in sets], keep=True, repeat=held - AUDIT_SLOTS)
    check_kept(bench, arm, study, slot)
    bench.forget([slot])
    # Once more after all those: who is honest in the first calls only has had them.
    _audit_calls(bench, arm, study, AUDIT_SLOTS, poison=True)
    ledger.passed("late-writes", f"{held} outputs held and read again after {LATE * 1e3:.0f} ms: unchanged")
    ledger.passed("output-reuse", "earlier outputs survive later calls")
    check_state(bench, study)
    check_environment(bench, arm, study)
    return arm


def _audit_calls(bench: Bench, arm: Arm, study: Study, count: int, poison: bool) -> None:
    """Calls on fresh inputs beside the baseline's: outputs, inputs, and outputs again a little later."""
    sets, seeds = bench.draw_many(count), [bench.seed() for _ in range(count)]
    expected = bench.run(bench.arms[BASELINE], sets, seeds)
    slot = bench.run(arm, sets, seeds, keep=True, poison=poison, building=not poison)
    _no_hooks(bench.ledger, slot)
    arm.call_ns = min(call.ns for call in slot.calls)
    for call, standard in zip(slot.calls, expected.calls, strict=True):
        learn(bench, study, standard)
        check_call(bench, study, call, standard)
    for one in (arm, bench.arms[BASELINE]):
        bench.tell(one, "inputs_back", 60, slot=count - 1)
    check_inputs(bench, arm, study, count - 1, slot.calls[-1])
    check_kept(bench, arm, study, slot)
    bench.forget([slot, expected])


def _check_helpers(bench: Bench, arm: Arm) -> None:
    """See that nothing which the candidate started is busy while the baseline runs.

    The timed part looks again, and more closely; here it saves the time for everything in between.
    """
    time.sleep(_HELPERS_REST)
    before, began = bench.strangers(), time.monotonic_ns()
    while time.monotonic_ns() - began < _HELPERS_WATCHED_NS:
        bench.forget([bench.run(bench.arms[BASELINE], bench.draw_many(1), [bench.seed()])])
    window_ns, after = time.monotonic_ns() - began, bench.strangers()
    mine = {*arm.process.helpers, *bench.fleet.orphans} & set(after)
    busy = {pid: ns for pid in mine if (ns := after[pid] - before.get(pid, 0)) > _BUSY_SHARE * window_ns}
    if busy:
        pid, ns = max(busy.items(), key=lambda item: item[1])
        bench.ledger.failed(
            "no-leftovers",
            f"process {pid}, started by the candidate, used {ns / 1e6:.0f} ms of CPU within "
            f"{window_ns / 1e6:.0f} ms while the baseline ran",
        )


def match_parameters(bench: Bench, arm: Arm, study: Study, state_file: str | None) -> None:
    """See that both arms hold the same parameter values, where these come from constructors (KernelBench).

    Running statistics that the candidate keeps under other names get the baseline's values before that.
    """
    if study.facts["format"] != "kernelbench":
        bench.ledger.not_applicable("parameters-match", "parameters come from `setup` or there are none")
        return
    theirs = study.facts["digest"]
    if theirs and theirs["statistics"]:
        bench.tell(arm, "statistics", 120, statistics=theirs["statistics"])
    mine = bench.tell(arm, "parameters", 120)["digest"]
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


def _learn_names(bench: Bench, arm: Arm, study: Study, before: dict[str, list[Any]]) -> None:
    """Where the candidate keeps changed state that it has not at the baseline's path.

    By what one call on the same inputs leaves there, so that names and order do not matter; whether it is
    right is seen later, in checked calls.
    """
    sets, seeds = bench.draw_many(1), [bench.seed()]
    slots = [bench.run(bench.arms[BASELINE], sets, seeds), bench.run(arm, sets, seeds, building=True)]
    theirs, mine = (
        bench.tell(a, "state_back", 60, moments=True)["digests"] for a in (bench.arms[BASELINE], arm)
    )
    bench.forget(slots)
    wanted = {path: theirs[path] for path in bench.contract["state"] if path in theirs and path not in mine}
    # What lies at a path of the baseline's is that leaf, and no other under another name.
    known = {*study.state_paths, *bench.contract["state"]}
    moved = {
        p: digest
        for p, digest in mine.items()
        # The hash: what was read before has no moments.
        if p not in known and (p not in before or digest[3] != before[p][3])
    }
    bench.contract["names"] = nearest_leaves(wanted, moved)
    bench.tell(arm, "contract", 60, **bench.contract)


def nearest_leaves(wanted: dict[str, list[Any]], moved: dict[str, list[Any]]) -> dict[str, str]:
    """For each wanted path the leaf of the same size whose digest is nearest; no leaf stands for two."""
    pairs = sorted(
        (math.dist(digest[:2], other[:2]), path, own)
        for path, digest in wanted.items()
        for own, other in moved.items()
        if digest[2] == other[2] and all(map(math.isfinite, digest[:3] + other[:3]))
    )
    names: dict[str, str] = {}
    taken: set[str] = set()
    for _distance, path, own in pairs:
        if path not in names and own not in taken:
            names[path] = own
            taken.add(own)
    return names


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


def check_inputs(
    bench: Bench, arm: Arm, study: Study, slot: int, call: Call, window: float | None = None
) -> None:
    """See that a call left its inputs alone, all but those that the baseline changes on the same set.

    The baseline's slot of that number holds the same call. With `window`, a place between 0 and 1, only a
    part of large inputs is read: that which lies there.
    """
    places, held = {arm.name: slot, BASELINE: slot}, (call.set, call.seed)
    if bench.arms[BASELINE].holds.get(slot) != held:
        # The candidate's outputs had outgrown their slots, and all slots were made anew.
        bench.run_baseline([call.set], [call.seed])
        places[BASELINE] = 0
    if arm.holds.get(slot) != held:
        # As before, but for the baseline's outputs.
        return

    def changed_by(name: str, window: float | None) -> dict[str, Any]:
        answer = bench.ask("inputs_changed", arm=name, slot=places[name], set=call.set, window=window)
        changed: dict[str, Any] = answer["changed"]
        return changed

    changed, allowed = changed_by(arm.name, window), changed_by(BASELINE, window)
    if window is not None and not changed.keys() <= allowed.keys():
        allowed = changed_by(BASELINE, None)
    extra = [i for i in changed if i not in allowed]
    if any(int(i) in bench.contract["inputs"] for i in extra):
        # Where the baseline's own change was rounded away, another's need not be.
        moved = bench.ask("inputs_moved", set=call.set, seed=call.seed)["leaves"]
        extra = [i for i in extra if int(i) not in moved]
    if extra:
        seen = changed[extra[0]]
        bench.ledger.failed(
            "inputs-unchanged",
            f"input {extra[0]}, element {seen['element']}: was {seen['was']}, is {seen['now']} "
            "after the call; the baseline leaves it alone",
        )
    late = [int(i) for i in allowed if int(i) not in bench.contract["inputs"]]
    if late:
        mine, theirs = (bench.take_inputs(name, at, call, late) for name, at in places.items())
        check_changed_inputs(bench, study, mine, theirs, late)
    bench.ledger.passed(
        "inputs-unchanged",
        "bit-identical after the call"
        if not bench.contract["inputs"]
        else "only what the baseline changes was changed",
    )


def check_kept(bench: Bench, arm: Arm, study: Study, slot: Slot) -> None:
    """Outputs that were kept must still be what was returned."""
    changed = changes_later(bench, arm, slot, spoil=not study.reuses_outputs)
    if changed is None:
        return
    if changed.get("graph"):
        bench.ledger.warned(
            "output-reuse", "CUDA-graph outputs of torch.compile: certified as valid until the next call"
        )
        return
    if changed.get("shared"):
        if study.reuses_outputs:
            bench.ledger.warned("output-reuse", "calls share memory of their outputs, as the baseline's do")
        else:
            bench.ledger.failed(
                "output-reuse",
                "two outputs, of one call or of two, are the same memory: who changes one changes the other",
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


def watch_state(bench: Bench, study: Study) -> None:
    """Remember what both arms start with alike, before their first call."""
    theirs, mine = (
        bench.tell(bench.arms[name], "state_back", 60)["digests"] for name in (BASELINE, CANDIDATE)
    )
    study.shared_state = _shared(theirs, mine)


def _shared(theirs: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
    """What started as the baseline's state; a candidate's own scratch is its own affair."""
    return {path: digest for path, digest in theirs.items() if mine.get(path) == digest}


def check_state(bench: Bench, study: Study) -> None:
    """See that the last call, whichever that was, left alone what the baseline leaves alone.

    What the baseline changes is among the outputs. Both are asked under a key that no call could know.
    """
    base, cand = bench.arms[BASELINE], bench.arms[CANDIDATE]
    # Where a gradient is nothing but rounding, the baseline's may be rounded away, and another's need not be.
    paths = [
        path
        for path in study.shared_state
        if path not in bench.contract["state"] and f"state:{path}.grad" not in study.cancelled
    ]
    if paths:
        key = f"{bench.rng.getrandbits(128):x}"
        mine, theirs = (
            bench.tell(arm, "state_back", 60, key=key, paths=paths)["digests"] for arm in (cand, base)
        )
        differ = [path for path in paths if mine.get(path) != theirs.get(path)]
        # Where it was the baseline that changed (a flag of its first call, say) nothing is known.
        now = bench.tell(base, "state_back", 60, paths=differ)["digests"] if differ else {}
        changed = [path for path in differ if now.get(path) == study.shared_state[path]]
        if changed:
            bench.ledger.failed("state-matches", f"state {changed[0]} changed; the baseline leaves it alone")
    detail, names = "state is left as the baseline leaves it", bench.contract["names"]
    if names:
        detail += f"; {len(names)} of its tensors have other names"
        bench.ledger.passed("state-matches", detail, names=names)
    else:
        bench.ledger.passed("state-matches", detail)


def check_signals(bench: Bench, arm: Arm) -> None:
    """See that no code of the candidate's runs when its process is thawed, before its own clock does."""
    if arm.process.catches(signal.SIGCONT):
        bench.ledger.failed(
            "harness-intact", "the candidate handles SIGCONT, with which each of its timed slots begins"
        )


def check_environment(bench: Bench, arm: Arm, study: Study) -> None:
    """Same global switches in both arms, and the harness's functions untouched."""
    facts = bench.tell(arm, "facts", 60)
    if facts["replaced"]:
        bench.ledger.failed("harness-intact", f"the candidate replaced {', '.join(facts['replaced'][:5])}")
    if facts["hooks"]:
        bench.ledger.failed("harness-intact", f"the candidate left {', '.join(facts['hooks'])} installed")
    check_signals(bench, arm)
    detail = "no modes, no hooks, timing functions are the originals"
    if facts["refused"]:
        detail += f"; {', '.join(facts['refused'])} was tried, and refused"
    bench.ledger.passed("harness-intact", detail)
    differ = [
        f"{name}: baseline {study.flags.get(name)}, candidate {value}"
        for name, value in facts["flags"].items()
        if study.flags.get(name) != value and not (bench.device == "cpu" and name in _CUDA_ONLY)
    ]
    if differ:
        bench.ledger.failed("environment-same", "; ".join(differ))
    else:
        bench.ledger.passed("environment-same", "same flags, threads, affinity and versions")
