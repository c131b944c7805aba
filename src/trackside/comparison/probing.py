"""Untimed inputs off the beaten distribution and of other sizes, and whether lazy answers would show."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from trackside.comparison import tolerance
from trackside.comparison.arms import BASELINE, CANDIDATE, Call
from trackside.comparison.audit import check_kept, check_state
from trackside.comparison.baseline import BROKEN, fit_outputs, oracle_is_finite
from trackside.comparison.bench import Bench
from trackside.comparison.checks import Ledger
from trackside.comparison.lifetime import changes_later
from trackside.comparison.outputs import check_call
from trackside.comparison.probe_kinds import (
    FINITE_ONLY,
    FLOATS_ONLY,
    NO_SUCH_INPUTS,
    NORMWISE,
    ORDER_KEPT,
    PROBES,
)
from trackside.comparison.study import AUDIT_SLOTS, Study, dtype_of
from trackside.comparison.tolerance import Bins
from trackside.records.errors import TracksideError
from trackside.workload.time_limit import allowed

__all__ = [
    "PROBE_SECONDS",
    "baseline_copes",
    "differs",
    "few_of",
    "probe",
    "probe_in_a_row",
    "probe_shapes",
    "report_probes",
    "spot_check",
]


_OFF, _OFF_TIMES = 1e-3, 1000.0
# Where it is far off on drawn inputs already, it may be so here.
_TWICE = 2.0
_TIED_SHARE = 0.01
# Times what is allowed: where noise explains an error, checks allow more, and here nobody asks for noise.
_CLEARLY = 16
# Seconds in which a baseline must be done with a probe, unless it is slow on its own inputs too.
PROBE_SECONDS = 5.0
# Kinds of probes that a timed process gets at one secret moment, so that four pairs of processes meet them
# all; one where a call, and with it the oracle, takes longer than this. Fewer where they would take more than
# this share of a pair's time, but never so few that all pairs together would not meet every kind.
_SPOT_PROBES, _QUICK_NS, _SPOT_SHARE = 4, 10e6, 0.15
# Two draws of an accuracy over hundreds of rows are the same number by chance: one time in ten thousand three
# pairs are.
_MORE_STALE = 2
# Inputs or leaves of the state that a warning names before it counts the rest.
_MOST_NAMED = 4
_STATE_WORDS = {
    ("zeros", "ones"): "holds zeros or ones only, and no call changes that: code that ignores it",
    ("identity",): "is an identity, and no call changes that: code that skips it",
    ("copies",): "is a copy of other state, bit for bit: code that uses one for the other",
}


def probe(bench: Bench, study: Study) -> list[str]:
    """Inputs off the beaten distribution; returns the probes that counted.

    Also says whether lazy answers would be told apart on the task's own inputs.
    """
    base, cand = bench.arms[BASELINE], bench.arms[CANDIDATE]
    ran = []
    lazy = _insensitive(bench, study)
    began = time.monotonic()
    moved: set[int] = set()
    bent: set[int] = set()
    for kind in PROBES:
        sample = bench.draw()
        assert sample is not None
        # Two draws of a flag or of a small number may be the same by chance: these are eight more.
        moved.update(bench.ask("moved", set=sample)["inputs"])
        try:
            made = bench.draw(kind, sample)
        except TracksideError as error:
            study.probes[kind] = f"not applicable: it cannot be made of these inputs ({error.message[:100]})"
            bench.ask("forget", sets=[sample], calls=[])
            continue
        if made is None:
            study.probes[kind] = "not applicable: the inputs' structure or domain rules it out"
            bench.ask("forget", sets=[sample], calls=[])
            continue
        seed = bench.seed()
        try:
            # A loop that waits for convergence may never see it on such inputs.
            limit = allowed(PROBE_SECONDS, study.run_ns / 1e9)
            finite = study.random or oracle_is_finite(bench, study, made, seed, PROBE_SECONDS)
            expected = bench.run(base, [made], [seed], limit=limit) if finite else None
        except TracksideError as error:
            study.probes[kind] = f"not counted: the baseline refuses it ({error.message[:300]})"
            bench.ask("forget", sets=[sample, made], calls=[])
            continue
        if expected is None:
            study.probes[kind] = "not counted: the oracle is not finite there, or only inside an operator"
            bench.ask("forget", sets=[sample, made], calls=[])
            continue
        if not baseline_copes(bench, study, expected.calls[0]):
            study.probes[kind] = "not counted: the baseline itself fails there"
            bench.forget([expected])
            bench.ask("forget", sets=[sample], calls=[])
            continue
        # The sample goes first: whoever keeps answers by a fingerprint has one now that fits the bent set.
        bench.situation, bench.remedy = f" on probe `{kind}`", f"; {NO_SUCH_INPUTS}"
        slot = bench.run(cand, [sample, made], [seed, seed])
        bench.situation = bench.remedy = ""
        _check_probe(bench, study, slot.calls[1], expected.calls[0], kind, sample)
        moved.update(_shown_to_matter(bench, study, expected.calls[0], kind, moved))
        bent.update(bench.ask("bent", set=made)["inputs"])
        if lazy.leaves and kind not in FINITE_ONLY | FLOATS_ONLY:
            _keep_common(lazy.leaves, _lazy_beside(bench, study, made, sample, seed).leaves)
        bench.forget([slot, expected])
        ran.append(kind)
        study.probes[kind] = "passed"
    study.probe_seconds = (time.monotonic() - began) / max(1, len(ran))
    _report_sensitivity(bench, study, lazy, moved, bent)
    return ran


def probe_in_a_row(bench: Bench, study: Study) -> list[str]:
    """Calls that start where the one before ended: right from a fresh state or seed must be right from there.

    Timed calls start from one state and a seed each, so who counts on that is found here only.
    """
    if not (bench.contract["restore"] or study.random):
        return []
    sets, seed = bench.draw_many(AUDIT_SLOTS), bench.seed()
    seeds = [seed] * len(sets)
    bench.ask("follow", sets=sets)
    expected, slot = (
        bench.run(bench.arms[name], sets, seeds, carry=True, keep=True) for name in (BASELINE, CANDIDATE)
    )
    counted = 0
    for number, (call, standard) in enumerate(zip(slot.calls, expected.calls, strict=True), 1):
        if not _baseline_passes(bench, study, standard):
            break
        check_call(bench, study, call, standard, "holds-on-probes", f"call {number} in a row")
        counted = number
    bench.forget([slot, expected])
    if counted < 2:
        study.probes["calls in a row"] = "not counted: the baseline itself fails there"
        return []
    study.probes[f"{counted} calls in a row"] = "passed"
    return [f"{counted} calls in a row"]


def spot_check(bench: Bench, study: Study, count: int, pairs: int, seconds: float, **timed: Any) -> None:
    """The state that a timed call left, a probe and two held outputs: right in the audit must be right here.

    Both arms do the same, in random order: holding outputs leaves an allocator with other memory, and that
    changes later times (on an H200 a 2 GB copy by 0.7 %).

    Args:
        count: calls of a timed slot.
        pairs: pairs of processes that are timed, and what each has on average, in seconds.
        timed: how timed slots are run, as `Bench.run` has it.
    """
    check_state(bench, study)
    base, cand = bench.arms[BASELINE], bench.arms[CANDIDATE]
    # Before outputs are held: whoever sees that they are could be honest in the slot that follows.
    due = _due(bench, study, pairs, seconds)
    room = max(1, count // 2)
    for first in range(0, len(due), room):
        _probe_slot(bench, study, due[first : first + room], count, timed)
    sets = bench.draw_many(2)
    seeds = [bench.seed() for _ in sets]
    order = bench.rng.sample([base, cand], 2)
    held = {arm.name: bench.run(arm, sets, seeds, keep=True) for arm in order}
    changes_later(bench, base, held[BASELINE], spoil=not study.reuses_outputs)
    check_kept(bench, cand, study, held[CANDIDATE])
    bench.forget(list(held.values()))
    for arm in (base, cand):
        arm.process.freeze()


def _due(bench: Bench, study: Study, pairs: int, seconds: float) -> list[str]:
    """The next kinds in a secret order in which none comes again before all others had their turn."""
    passed = [kind for kind in PROBES if study.probes.get(kind) == "passed"]
    wanted = 1
    if study.run_ns < _QUICK_NS:
        in_time = int(_SPOT_SHARE * seconds / max(study.probe_seconds, 1e-9))
        wanted = max(math.ceil(len(passed) / pairs), min(_SPOT_PROBES, in_time))
    while passed and len(study.due) < wanted:
        study.due += bench.rng.sample(passed, len(passed))
    taken, study.due = study.due[:wanted], study.due[wanted:]
    return list(dict.fromkeys(taken))


class _Probe(NamedTuple):
    kind: str
    made: int
    """Its set."""
    sample: int
    """The set that it is made from."""


def _probe_slot(bench: Bench, study: Study, kinds: list[str], count: int, timed: dict[str, Any]) -> None:
    """Probes at secret places of a slot like those that are timed: a call cannot tell what it is for."""
    base, cand = bench.arms[BASELINE], bench.arms[CANDIDATE]
    sets = bench.draw_timed(count)
    seeds = [bench.seed() for _ in sets]
    places = bench.rng.sample(range(count), min(count, 2 * len(kinds)))
    probes: dict[int, _Probe] = {}
    for number, kind in enumerate(kinds):
        # After the set that it is made from, where there is room: who knows that by a fingerprint knows this.
        pair = sorted(places[2 * number : 2 * number + 2])
        made = bench.draw(kind, sets[pair[0]])
        if made is not None:
            probes[pair[-1]] = _Probe(kind, made, sets[pair[0]])
    asked = [probe.made for probe in probes.values()]
    for at, probe in list(probes.items()):
        try:
            counts = study.random or oracle_is_finite(bench, study, probe.made, seeds[at], PROBE_SECONDS)
        except TracksideError:
            counts = False
        if not counts:
            del probes[at]
    expected = bench.run(base, _with_probes(sets, probes), seeds, **timed)
    for at in list(probes):
        if not baseline_copes(bench, study, expected.calls[at]):
            # Both run all the same, so that neither has had more calls.
            del probes[at]
    slot = bench.run(cand, _with_probes(sets, probes), seeds, **timed)
    for at, probe in probes.items():
        _check_probe(bench, study, slot.calls[at], expected.calls[at], probe.kind, probe.sample)
    bench.forget([slot, expected])
    bench.ask("forget", sets=[*sets, *asked], calls=[])


def _with_probes(sets: list[int], probes: dict[int, _Probe]) -> list[int]:
    return [probes[at].made if at in probes else made for at, made in enumerate(sets)]


def _check_probe(bench: Bench, study: Study, call: Call, standard: Call, kind: str, sample: int) -> None:
    check_call(
        bench,
        study,
        call,
        standard,
        "holds-on-probes",
        f"probe `{kind}`",
        normwise=kind in NORMWISE,
        floats_only=kind in FLOATS_ONLY,
        unscaled=sample if kind in ORDER_KEPT else None,
        sample=sample,
        finite_only=kind in FINITE_ONLY,
    )


def report_probes(ledger: Ledger, ran: list[str], rows: list[str]) -> None:
    """Say which probes the candidate was right on; calls in a row change no input and stand for none."""
    if ran:
        ledger.passed("holds-on-probes", f"right on {len(ran)} probes: {', '.join(ran + rows)}")
    else:
        told = f"; right in {' and '.join(rows)}" if rows else ""
        ledger.unknown("holds-on-probes", f"no probe could be made from these inputs{told}")


def probe_shapes(bench: Bench, study: Study, shapes: dict[int, Any]) -> list[str]:
    """Sizes, by number, that the task tests and does not time: right there too, or only for timed ones."""
    ran = []
    base, cand = bench.arms[BASELINE], bench.arms[CANDIDATE]
    timed, room = bench.shape, bench.output_bytes
    for number, shape in shapes.items():
        bench.shape = number
        bench.spec = bench.ask("specify", seeds=[bench.set_seed(), bench.set_seed()], shape=number)["spec"]
        fit_outputs(bench, base)
        bench.map_arena(cand, 1)
        made, seed = bench.draw(), bench.seed()
        assert made is not None
        expected = bench.run(base, [made], [seed], timeout=bench.build_timeout)
        if _baseline_passes(bench, study, expected.calls[0]):
            slot = bench.run(cand, [made], [seed], timeout=bench.build_timeout)
            check_call(
                bench, study, slot.calls[0], expected.calls[0], "holds-on-probes", f"probe of shape {shape}"
            )
            bench.forget([slot])
            ran.append(f"shape {shape}")
            study.probes[ran[-1]] = "passed"
        else:
            study.probes[f"shape {shape}"] = "not counted: the baseline itself fails there"
        bench.forget([expected])
    if shapes:
        bench.shape, bench.output_bytes = timed, room
        bench.spec = bench.ask("specify", seeds=[bench.set_seed(), bench.set_seed()], shape=timed)["spec"]
        for arm in (base, cand):
            bench.map_arena(arm, AUDIT_SLOTS)
    return ran


def baseline_copes(bench: Bench, study: Study, call: Call) -> bool:
    """Whether the baseline is right on a probe; where it is itself what is expected, whether it is finite."""
    return _baseline_passes(bench, study, call) and (
        not study.random
        or (oracle_is_finite(bench, study, call.set, call.seed) and _knows_its_way(bench, study, call))
    )


def _knows_its_way(bench: Bench, study: Study, call: Call) -> bool:
    """Whether what a task that draws answers on a probe is more than what rounding makes of it."""
    noise = {"set": call.set, "seed": call.seed, "times": 1, "output": None}
    moved = bench.ask("condition", (), draws=1, seconds=0.0, **noise)["leaves"]
    return not any(leaf["path"] not in study.cancelled and _loses_its_way(study, leaf) for leaf in moved)


def _baseline_passes(bench: Bench, study: Study, call: Call) -> bool:
    if study.random:
        bench.ask("adopt_answer", call=call.id, set=call.set, seed=call.seed, leaves=call.leaves)
        return True
    for leaf in bench.errors(call):
        if leaf.get("nonfinite") or leaf.get("missing"):
            return False
        # A few integers off the oracle are ties; many mean that the baseline lost its way.
        if leaf.get("mismatches", 0) > _TIED_SHARE * leaf.get("elements", 1):
            return False
        if "bins" in leaf and leaf["path"] not in study.cancelled and _loses_its_way(study, leaf):
            return False
    return True


def _loses_its_way(study: Study, leaf: dict[str, Any]) -> bool:
    """Whether the baseline is far off on a probe, or a thousand times as far as on drawn inputs.

    There an answer hangs on roundings alone, and which elements those reach is chance: in attention that has
    settled on one key, gradients of queries are what is left of large terms.
    """
    error = tolerance.relative_error(leaf["bins"])["rms"]
    # Of a task that draws the baseline's own output is what is expected: its error is what noise has taught.
    learnt = study.bins if study.random else study.whole_bins
    drawn = tolerance.relative_error(learnt.get(leaf["path"], {}))["rms"]
    return bool(error > max(BROKEN, _TWICE * drawn) or (error > _OFF and error > _OFF_TIMES * drawn))


class _Lazy(NamedTuple):
    """Answers that take no work and that nothing would tell from right ones."""

    whole: list[str]
    """Those that pass for all outputs at once."""
    leaves: dict[str, set[str]]
    """By output, those that pass for it alone."""


def _insensitive(bench: Bench, study: Study) -> _Lazy:
    if study.random:
        return _Lazy([], {})
    passing = _lazy_that_pass(bench, study)
    for _ in range(_MORE_STALE):
        if not any("stale" in lazies for lazies in (passing.whole, *passing.leaves.values())):
            break
        again = _lazy_that_pass(bench, study)
        if "stale" in passing.whole and "stale" not in again.whole:
            passing.whole.remove("stale")
        _keep_common(passing.leaves, again.leaves)
    return passing


def _keep_common(known: dict[str, set[str]], again: dict[str, set[str]]) -> None:
    for path, lazies in list(known.items()):
        lazies &= again.get(path, set())
        if not lazies:
            del known[path]


def _lazy_that_pass(bench: Bench, study: Study) -> _Lazy:
    first, second, seed = bench.draw(), bench.draw(), bench.seed()
    assert first is not None
    assert second is not None
    found = _lazy_beside(bench, study, first, second, seed)
    bench.ask("forget", sets=[first, second], calls=[])
    return found


def _lazy_beside(bench: Bench, study: Study, made: int, stale: int, seed: int) -> _Lazy:
    """Which pass on one set, with the answer of another as the stale one."""
    rows = bench.ask("sensitivity", set=made, stale=stale, seed=seed)["leaves"]
    whole: list[str] = []
    for lazy in ("zeros", "constant", "stale"):
        tried = [row for row in rows if lazy in row["lazy"]]
        if tried and all(_would_pass(study, row["path"], row["lazy"][lazy]) for row in tried):
            whole.append(lazy)
    leaves = {
        row["path"]: {name for name, lazy in row["lazy"].items() if _would_pass(study, row["path"], lazy)}
        | ({"stale"} if row.get("same") else set())
        for row in rows
        # From one beginning a counter is the same every time, and a loss may be: calls in a row tell.
        if row["path"].startswith("out") and len(rows) > 1 and not bench.contract["restore"]
    }
    return _Lazy(whole, {path: lazies for path, lazies in leaves.items() if lazies})


def _shown_to_matter(
    bench: Bench, study: Study, standard: Call, kind: str, known: Collection[int]
) -> list[int]:
    """Inputs that no draw but this probe changed, so that code which ignores them would have failed here.

    A change need not matter: a mask of -1e9 masks as well when it is eight times as large.
    """
    if kind in FINITE_ONLY:
        return []
    made, seed = standard.set, standard.seed
    asked = [i for i in bench.ask("moved", set=made)["inputs"] if i not in known]
    if not asked:
        return []
    base = {leaf["path"]: leaf.get("bins", {}) for leaf in bench.errors(standard)}
    return [
        row["input"]
        for row in bench.ask("ignoring", set=made, seed=seed, inputs=asked)["found"]
        if any(differs(study, leaf, base.get(leaf["path"], {}), kind) for leaf in row["leaves"])
    ]


def differs(study: Study, leaf: dict[str, Any], base: Bins, kind: str, slack: float = _CLEARLY) -> bool:
    """Whether an output on a probe is further off than an honest one may be."""
    if "mismatches" in leaf:
        many = bool(leaf["mismatches"] > _TIED_SHARE * leaf["elements"])
        return many and (kind not in FLOATS_ONLY or leaf["dtype"] == "shape")
    dtype = dtype_of(study, leaf["path"])
    allowances = tolerance.allow(base, dtype, study.declared, flushed=True, slack=slack, narrow=study.narrow)
    if kind in NORMWISE:
        allowances = tolerance.normwise(allowances, dtype)
    return bool(leaf["nonfinite"]) or tolerance.exceeds(leaf["bins"], allowances) is not None


def _report_sensitivity(
    bench: Bench, study: Study, lazy: _Lazy, moved: Collection[int], bent: Collection[int]
) -> None:
    """Say whether wrong code would show, after probes that changed these inputs too.

    Args:
        moved: inputs that are the same in the first draws, and that later ones or probes had otherwise.
        bent: inputs that probes bent.
    """
    drawn, seed = bench.draw(), bench.seed()
    untested = bench.ask("untested", set=drawn, seed=seed, moved=sorted(moved), bent=sorted(bent))
    bench.ask("forget", sets=[drawn], calls=[])
    warnings = []
    if lazy.whole:
        warnings.append(
            f"on these inputs {', '.join(lazy.whole)} would pass too: the task itself hardly tests the code"
        )
    elif lazy.leaves:
        which = sorted({one for lazies in lazy.leaves.values() for one in lazies})
        names = {"zeros": "zeros", "constant": "one number throughout", "stale": "that of other inputs"}
        warnings.append(
            f"{few_of(sorted(lazy.leaves))}: in every draw and probe {' or '.join(names[n] for n in which)} "
            "would pass for it, and so would code that never computes it"
        )
    if inputs := untested["inputs"]:
        what, are, it = ("input", "is", "it") if len(inputs) == 1 else ("inputs", "are", "them")
        warnings.append(
            f"{what} {few_of(inputs)} {are} the same in every draw, and no probe changed {it} to any effect: "
            f"code that ignores {it} would pass too; let `inputs` vary {it} with the seed"
        )
    if bent and (unbent := untested["unbent"]):
        # Where no probe could be made at all, that is said elsewhere.
        what = "input" if len(unbent) == 1 else "inputs"
        warnings.append(
            f"no probe could bend {what} {few_of(unbent)}: code that is right only for values such as "
            f"`inputs` draws would pass too"
        )
    state = {path: kind for path, kind in study.suspects.items() if path not in study.settled}
    warnings += _state_warnings(state, study.facts["format"] == "kernelbench")
    if study.only_as_made:
        warnings.append(
            f"the candidate is right for the state as `setup` makes it only: {study.only_as_made}; code may "
            "count on what these values have in common"
        )
    if outputs := untested["outputs"]:
        warnings.append(
            f"{few_of(outputs)} would tell of NaN among the inputs, which no draw has: code that returns the "
            "same every time would pass too; let `inputs` draw some"
        )
    if warnings:
        bench.ledger.warned("task-is-sensitive", "; ".join(warnings), state=list(state), **untested)
    else:
        bench.ledger.passed(
            "task-is-sensitive", "zeros, a constant and a stale answer would all be told apart"
        )


def _state_warnings(state: dict[str, str], constructed: bool) -> Iterator[str]:
    """What of the state no probe gave other values, by what it is."""
    where = "the model's constructor" if constructed else "`setup`"
    for kinds, what in _STATE_WORDS.items():
        if paths := [path for path, kind in state.items() if kind in kinds]:
            yield (
                f"state {few_of(paths)} {what} would pass too; give it other values in {where}, with "
                "`torch.nn.init.normal_`, say"
            )


def few_of(names: list[Any]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(map(str, names[:_MOST_NAMED]))
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown


def _would_pass(study: Study, path: str, lazy: dict[str, Any]) -> bool:
    dtype, bins = dtype_of(study, path), lazy["bins"]
    allowances = tolerance.allow(
        study.bins.get(path, {}),
        dtype,
        study.declared,
        narrow=study.narrow,
        small_parts=path in study.small_parts,
    )
    return (
        not lazy["nonfinite"]
        and bool(allowances)
        and all(n in allowances for n in bins)
        and tolerance.exceeds(bins, allowances) is None
    )
