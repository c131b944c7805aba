"""One candidate call beside the baseline's on equal inputs: how far off it may be, and what explains more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trackside.comparison import tolerance
from trackside.comparison.arms import Call
from trackside.comparison.baseline import UNSTABLE, extend_contract
from trackside.comparison.bench import Bench
from trackside.comparison.probe_kinds import NO_SUCH_INPUTS
from trackside.comparison.structure import check_structure, overlaps, word
from trackside.comparison.study import Study, plain_dtype
from trackside.comparison.tolerance import Bins

__all__ = ["check_call", "check_changed_inputs", "suspicious"]

# Draws of rounding that settle what few ill-conditioned elements may be off by. At a kink there must be one
# beyond it, and by as much as the candidate's: nearly every second is, so of a few turns one is.
_NOISE_DRAWS, _KINK_TURNS = 8, 4
# One kink moves all that is learnt through it, by an amount of its own: times the most that was seen.
_KINK_SLACK = 2.0
# Those that show what rounding does to all elements, in the mean.
_CONDITION_DRAWS = 3
# Elements that may have jumped, as a share of all; each must be explained, so it may be as large as what is
# left out when the baseline's errors are learnt. One in eight draws takes a value over a tie after one step.
_JUMPS_SHARE, _JUMP_DRAWS, _JUMP_SECONDS = 0.02, 256, 4.0
_DOUBLE = ("float64", "complex128")
_PLAIN_IS_DOUBLE = (
    "a plain float is a double, and the baseline computes with doubles: compute with doubles too, or let the "
    "baseline return a float32 tensor, or declare `tolerance` in its file"
)
_WIDE = (*_DOUBLE, "float32", "complex64")
# For drawing other roundings, of which one is always made; fewer where no verdict hangs on what they show.
_NOISE_SECONDS, _BRIEF_SECONDS = 60.0, 5.0
# Of most elements so many times what is allowed is no rounding's doing, save in derivatives, at kinks.
_FAR_OFF = 1000
# What two calls may differ by: the candidate's allowance, and the baseline's error, a quarter of it at most.
_BOTH_OFF = 1.25
# So many elements, or this share of all, are looked at more closely before they are called wrong.
_FEW_ELEMENTS, _FEW_SHARE = 8, 1e-3
# Probes look for wrong answers; how precise answers must be, the task's own inputs decide. Adding 4096 values
# one after the other instead of pairwise, which is legal, is off by twice what would be allowed otherwise.
_PROBE_SLACK = 4


@dataclass(frozen=True)
class _Look:
    """One candidate call, what it is held against, and as which check."""

    bench: Bench
    study: Study
    call: Call
    standard: Call
    """The baseline's call on the same inputs."""
    check: str
    name: str
    normwise: bool
    floats_only: bool
    unscaled: int | None
    sample: int | None
    finite_only: bool
    brief: bool
    rounded: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    """What other roundings do to all leaves, by how they were asked for: each takes many calls."""

    @property
    def probing(self) -> bool:
        return self.check == "holds-on-probes"

    def ask(self, op: str, **message: Any) -> dict[str, Any]:
        """Ask the reference process about the candidate's call."""
        return self.bench.ask(op, call=self.call.id, set=self.call.set, seed=self.call.seed, **message)

    def roundings(self, draws: int, times: float, output: str | None, turn: int = 0) -> dict[str, Any]:
        """What other roundings do to the baseline on this call's inputs: of all leaves at once, so once only.

        A training step has hundreds of leaves, and each would have its draws anew, which are the same ones.
        """
        key = (draws, times, output, turn)
        if key not in self.rounded:
            place = {"set": self.standard.set, "seed": self.standard.seed}
            seconds = _BRIEF_SECONDS if self.brief else _NOISE_SECONDS
            noise = {"times": times, "output": output, "turn": turn, "seconds": seconds}
            self.rounded[key] = self.bench.ask("condition", (), draws=draws, **place, **noise)
        return self.rounded[key]

    @property
    def remedy(self) -> str:
        """The way out of a probe for who is right on all inputs that there are."""
        return f"; {NO_SUCH_INPUTS}" if self.sample is not None else ""

    def failed(self, check: str, detail: str, **evidence: Any) -> None:
        self.bench.ledger.failed(check, f"{self.name}, {detail}{self.remedy}", **evidence)

    def standard_leaf(self, path: str) -> dict[str, Any]:
        return next(f for f in self.standard.leaves if f["path"] == path)


def check_call(
    bench: Bench,
    study: Study,
    call: Call,
    standard: Call,
    check: str = "output-matches-oracle",
    label: str = "",
    *,
    normwise: bool = False,
    floats_only: bool = False,
    unscaled: int | None = None,
    sample: int | None = None,
    finite_only: bool = False,
    brief: bool = False,
) -> None:
    """Structure, aliasing and accuracy of one candidate call, beside the baseline's on the same inputs.

    Args:
        normwise: hold every element to what the largest values allow.
        floats_only: let integers, booleans and plain whole numbers be what they are.
        unscaled: the set of which this call's is a multiple; integers that are right there will do.
        sample: the set that this call's was bent from; where bending alone made scores equal, integers are
            let be.
        finite_only: let floats too be what they are, if they are NaN and infinite where they should be.
        brief: look for explanations of an error less long, and for none where most elements are far off.
    """
    look = _Look(
        bench,
        study,
        call,
        standard,
        check,
        label or f"call {call.id}",
        normwise,
        floats_only or finite_only,
        unscaled,
        sample,
        finite_only,
        brief,
    )
    check_structure(bench.ledger, call, standard, look.name, study.reuses_outputs, look.remedy)
    for fact, leaf in zip(call.leaves, bench.errors(call), strict=True):
        _check_leaf(look, fact, leaf)
    study.checked += 1


def check_changed_inputs(
    bench: Bench, study: Study, call: Call, standard: Call, inputs: Sequence[int]
) -> None:
    """Hold inputs that the baseline was just seen to change to what it makes of them, from this call on."""
    extend_contract(bench, study, standard, inputs)
    check_call(bench, study, call, standard)
    bench.ask("forget", sets=[], calls=[call.id, standard.id])


def suspicious(bench: Bench, study: Study, call: Call, standard: Call) -> bool:
    """Whether a candidate call lies so far from the baseline's on the same inputs that the oracle must look.

    Both may be off the oracle, the candidate by its allowance and the baseline by a quarter of that at most;
    what lies further apart is for the oracle to judge. What is structured otherwise is suspicious too.
    """
    mine, theirs = (
        [
            (
                f["path"],
                word(f),
                f.get("within"),
                f.get("alias"),
                f.get("copied", True),
                f["kind"] == "tensor" and overlaps(f),
            )
            for f in c.leaves
        ]
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
        known = study.bins.get(leaf["path"], {})
        if any(number not in known for number in leaf["bins"]):
            return True
        if tolerance.exceeds(leaf["bins"], _allowances(known, study, leaf, _BOTH_OFF)) is not None:
            return True
    return False


def _check_leaf(look: _Look, fact: dict[str, Any], leaf: dict[str, Any]) -> None:
    path, check = leaf["path"], look.check
    if check == "output-matches-oracle" and path.startswith("state:"):
        check = "state-matches"
    if leaf.get("missing"):
        return
    if "mismatches" in leaf:
        if not look.floats_only or leaf["dtype"] == "shape":
            _check_exact(look, fact, leaf, check)
    elif leaf["nonfinite"] and not _excused(look, fact):
        look.failed(
            check,
            f"{path}{leaf['nonfinite_at']}: expected {_digits(leaf['expected'])}, found "
            f"{_digits(leaf['found'])} "
            f"({leaf['nonfinite']:,} NaN or infinities out of place)",
        )
    elif not look.finite_only:
        _check_error(look, fact, leaf, check)


def _excused(look: _Look, fact: dict[str, Any]) -> bool:
    """Whether NaN and infinities are out of place only where the baseline's are, on the same inputs."""
    if fact["path"] not in look.study.nonfinite:
        return False
    other = look.standard_leaf(fact["path"])
    return not look.ask("misplaced", leaf=fact, other=look.standard.id, other_leaf=other)["count"]


def _check_exact(look: _Look, fact: dict[str, Any], leaf: dict[str, Any], check: str) -> None:
    """Integers, plain values and shapes: equal, ties aside."""
    path = leaf["path"]
    if leaf["mismatches"] and leaf["dtype"] != "shape":
        base = {"baseline_call": look.standard.id, "baseline_leaves": [look.standard_leaf(path)]}
        sets = {"unscaled": look.unscaled, "sample": look.sample}
        leaf = look.ask("check_integers", leaves=[fact], **sets, **base)["leaves"][0]
    if leaf["mismatches"] and leaf.get("late"):
        # One that cannot be told from a near tie is nobody's fault; what follows is inconclusive.
        look.failed(
            "oracle-available",
            f"{path}{leaf['at']}: expected {leaf['expected']}, found {leaf['found']}; the oracle is too slow "
            "to tell whether rounding explains that: try smaller inputs, or add a faster `reference`",
        )
    elif leaf["mismatches"]:
        look.failed(
            check,
            f"{path}{leaf['at']}: expected {leaf['expected']}, found {leaf['found']} "
            f"({leaf['mismatches']:,} elements differ)",
        )


def _check_error(look: _Look, fact: dict[str, Any], leaf: dict[str, Any], check: str) -> None:
    """Floats: as close to the oracle as the baseline allows, in every bin of magnitude; or in the largest."""
    path, study = leaf["path"], look.study
    if path in study.cancelled and _is_rounding(look, leaf):
        return
    # Where no call that was learnt from had such values, the baseline's on the same inputs are the measure.
    base = (not look.probing and study.bins.get(path)) or _errors_beside(look, path)
    slack = _PROBE_SLACK if look.probing else 1
    limits: dict[str, Any] = {"slack": slack, "normwise": look.normwise, "probing": look.probing}
    allowances = _allowances(base, study, leaf, **limits)
    worst = tolerance.exceeds(leaf["bins"], allowances)
    if worst is not None and look.brief and not study.derives:
        far = _allowances(base, study, leaf, **{**limits, "slack": _FAR_OFF})
        if tolerance.elements_beyond(leaf["bins"], far) > sum(row[0] for row in leaf["bins"].values()) / 2:
            _tell(look, fact, leaf, check, base, allowances, worst)
            return
    if worst is not None and _same_as_baseline(look, fact):
        worst = None
    if worst is not None and look.sample is not None:
        leaf = _untied(look, fact, leaf, allowances)
        worst = tolerance.exceeds(leaf["bins"], allowances)
    if worst is not None and _dtype(study, leaf, base) not in _DOUBLE:
        # Operators may be wider inside than their types say, and the baseline too exact to be a measure.
        condition, magnitude = _condition(look, path)
        base = tolerance.at_least(base, condition)
        limits["inputs"] = magnitude if look.probing else 0.0
        allowances = _allowances(base, study, leaf, **limits)
        worst = tolerance.exceeds(leaf["bins"], allowances)
    strict, late = allowances, False
    if worst is not None and (look.probing or _few_beyond(leaf["bins"], allowances)):
        # A few elements may be ill-conditioned, or lie in a bin that hardly any call meets, and one look at
        # those is luck: see what the baseline does there, and what rounding does.
        whole = study.whole_bins.get(path, base)
        known = [base] if look.probing else [whole, _errors_beside(look, path)]
        dtype = _dtype(study, leaf, base)
        base = {}
        for errors in (*known, _noise_errors(look, path, dtype)):
            tolerance.merge(base, errors)
        allowances = _allowances(base, study, leaf, **limits)
        worst = tolerance.exceeds(leaf["bins"], allowances)
    if worst is not None and (look.probing or study.derives or _few_beyond(leaf["bins"], allowances)):
        # At a kink (a ReLU's) an error jumps, and with one unit all that derives from it: see what rounding
        # as large as is legal does there, on these very inputs.
        dtype = _dtype(study, leaf, base)
        for turn in range(_KINK_TURNS):
            jumps = _noise_errors(look, path, dtype, _legal_factor(look, leaf, base), turn)
            allowances = tolerance.widened(allowances, jumps, _KINK_SLACK if study.derives else 1.0)
            worst = tolerance.exceeds(leaf["bins"], allowances)
            if worst is None or not (study.derives or _few_beyond(leaf["bins"], allowances)):
                break
    if worst is not None and (study.narrow or not look.probing):
        explained, late = _jumps_explain(look, fact, leaf, strict, base, limits)
        # What probes show is an error until it is explained.
        late = late and not look.probing
        if explained:
            worst = None
    if worst is None:
        if not look.probing:
            tolerance.merge(study.candidate_bins.setdefault(path, {}), leaf["bins"])
        return
    if late:
        look.failed(
            "oracle-available",
            f"{path}: some elements lie beyond their limits, and the oracle is too slow to tell whether "
            "rounding explains each: try smaller inputs, or add a faster `reference`",
        )
        return
    _tell(look, fact, leaf, check, base, allowances, worst)


def _tell(
    look: _Look,
    fact: dict[str, Any],
    leaf: dict[str, Any],
    check: str,
    base: Bins,
    allowances: dict[str, tolerance.Allowance],
    worst: tuple[str, float],
) -> None:
    """Fail with the element that is furthest off."""
    path, study = leaf["path"], look.study
    edges = {number: min(a.largest, a.rms * 3) for number, a in allowances.items()}
    spot = look.ask("locate", leaf=fact, allowed=edges)
    mine, theirs = tolerance.relative_error(leaf["bins"]), tolerance.relative_error(base)
    held_to_doubles = leaf.get("plain") and _dtype(study, leaf, base) in _DOUBLE
    plain = f"; {_PLAIN_IS_DOUBLE}" if held_to_doubles else ""
    look.failed(
        check,
        f"{path}{spot['index']}: expected {_digits(spot['expected'])}, found "
        f"{_digits(spot['found'])} (error {_times(worst[1])} times what is allowed; rms {mine['rms']:.1e} "
        f"against the baseline's {theirs['rms']:.1e}){plain}",
        index=spot["index"],
        expected=spot["expected"],
        found=spot["found"],
        call=look.call.id,
    )


def _untied(
    look: _Look, fact: dict[str, Any], leaf: dict[str, Any], allowances: dict[str, tolerance.Allowance]
) -> dict[str, Any]:
    """A leaf's errors on a probe, but for what hangs on the order of scores that the probe made equal.

    There the order is the baseline's by chance: who ranks scores before an exponential flattens them, which
    is as right, has another.
    """
    allowed = {number: limit.largest for number, limit in allowances.items()}
    bins = look.ask("untied", leaf=fact, sample=look.sample, allowed=allowed, seconds=_NOISE_SECONDS)["bins"]
    return leaf if bins is None else {**leaf, "bins": bins}


def _is_rounding(look: _Look, leaf: dict[str, Any]) -> bool:
    """Whether what should be nothing is no more than rounding makes of it; on probes that is not known.

    It may be the square of such, as in Adam's state, and rounding that is legal is squared with it.
    """
    legal = _legal_factor(look, leaf, {}) ** 2 * look.study.cancelled[leaf["path"]]
    return look.probing or tolerance.error(leaf["bins"]) <= legal


def _legal_factor(look: _Look, leaf: dict[str, Any], base: Bins) -> float:
    return tolerance.legal_factor(_dtype(look.study, leaf, base), look.study.narrow, base)


def _allowances(
    base: Bins,
    study: Study,
    leaf: dict[str, Any],
    slack: float,
    normwise: bool = False,
    probing: bool = False,
    inputs: float = 0.0,
) -> dict[str, tolerance.Allowance]:
    dtype = _dtype(study, leaf, base)
    allowances = tolerance.allow(
        base,
        dtype,
        study.declared,
        own=study.bins.get(leaf["path"]) if probing else None,
        inputs=inputs,
        flushed=probing,
        slack=slack,
        narrow=study.narrow,
        small_parts=leaf["path"] in study.small_parts and not probing,
    )
    if normwise:
        allowances = tolerance.normwise(allowances, dtype)
    # A bin that no baseline call has met is judged by the nearest that one has.
    for number in leaf["bins"]:
        if number not in allowances and allowances:
            allowances[number] = allowances[min(allowances, key=lambda k, n=number: abs(int(k) - int(n)))]  # type: ignore[misc]
    return allowances


def _dtype(study: Study, leaf: dict[str, Any], base: Bins) -> str:
    return plain_dtype(study, base) if leaf.get("plain") else str(leaf["dtype"])


def _few_beyond(bins: Bins, allowances: dict[str, tolerance.Allowance]) -> bool:
    few = max(_FEW_ELEMENTS, _FEW_SHARE * sum(row[0] for row in bins.values()))
    return tolerance.elements_beyond(bins, allowances) <= few


def _same_as_baseline(look: _Look, fact: dict[str, Any]) -> bool:
    """Whether the baseline gave the same bits on the same inputs: then it is as right, jumps and all."""
    other = look.standard_leaf(fact["path"])
    (found,) = look.bench.ask(
        "screen", call=look.call.id, other=look.standard.id, leaves=[fact], other_leaves=[other]
    )["leaves"]
    return bool(found.get("same"))


def _jumps_explain(
    look: _Look,
    fact: dict[str, Any],
    leaf: dict[str, Any],
    allowances: dict[str, tolerance.Allowance],
    base: Bins,
    limits: dict[str, Any],
) -> tuple[bool, bool]:
    """Whether a leaf is right but for few elements at which rounding falls the other way.

    And whether there was too little time to tell.
    """
    asked = {"leaf": fact, "allowed": {number: limit.largest for number, limit in allowances.items()}}
    beyond = look.ask("beyond", **asked)
    most = max(_FEW_ELEMENTS, _JUMPS_SHARE * sum(row[0] for row in leaf["bins"].values()))
    # What no jump can explain is wrong already, however long others would take to look at.
    if beyond["count"] is None or beyond["count"] > most:
        return False, False
    if tolerance.exceeds(beyond["bins"], allowances):
        # Where a row is routed elsewhere some of it lies within limits by luck, in the baseline's too.
        theirs = look.bench.ask(
            "beyond",
            call=look.standard.id,
            set=look.standard.set,
            seed=look.standard.seed,
            leaf=look.standard_leaf(fact["path"]),
            allowed=asked["allowed"],
        )
        both = tolerance.at_least(base, theirs["bins"]) if theirs["count"] is not None else base
        if tolerance.exceeds(beyond["bins"], _allowances(both, look.study, leaf, **limits)):
            return False, False
    dtype = _dtype(look.study, leaf, base)
    found = look.ask(
        "jumps",
        **asked,
        other=look.standard.id,
        other_leaf=look.standard_leaf(fact["path"]),
        # Types as the baseline computes in them; of narrow ones more than a step would be another precision.
        times=_legal_factor(look, leaf, base) if dtype in _WIDE else 1,
        draws=_JUMP_DRAWS,
        seconds=_JUMP_SECONDS,
        output=dtype if dtype in _DOUBLE else None,
    )
    if found["unexplained"] is None:
        return False, False
    return not found["unexplained"], found["late"]


def _errors_beside(look: _Look, path: str) -> Bins:
    """The errors that the baseline makes on the same inputs."""
    return _bins_of(look.bench.errors(look.standard), path)


def _condition(look: _Look, path: str) -> tuple[Bins, float]:
    """What rounding does in the types in which the baseline computes, jumps aside; and how large inputs are.

    Where it goes over to doubles it is meant to be more exact, and held to what it is. For doubles and where
    the baseline itself is what is expected, this is how its errors were learnt.
    """
    answer = look.roundings(_CONDITION_DRAWS, 1, None)
    bins = {} if answer["widened"] else _bins_of(_steady(look.study, answer["leaves"]), path, "bulk")
    return bins, answer["inputs"]


def _noise_errors(look: _Look, path: str, dtype: str, times: float = 1, turn: int = 0) -> Bins:
    """What rounding on the way does, also to the output's own type, or so many times that."""
    return _bins_of(_steady(look.study, look.roundings(_NOISE_DRAWS, times, dtype, turn)["leaves"]), path)


def _steady(study: Study, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a task that draws without those roundings that moved what is drawn: they say nothing of errors."""
    if not study.random:
        return rows
    return [row for row in rows if tolerance.relative_error(row["bins"])["rms"] < UNSTABLE]


def _bins_of(rows: list[dict[str, Any]], path: str, which: str = "bins") -> Bins:
    found: Bins = {}
    for row in rows:
        if row["path"] == path and which in row:
            tolerance.merge(found, row[which])
    return found


def _times(factor: float) -> str:
    """Never as 1: what is beyond its limit is beyond. Beyond a billion, as a power of ten."""
    if factor >= 1e9:
        return f"{factor:.0e}"
    return f"{factor:,.1f}" if factor >= 1.1 else f"{max(factor, 1.001):.3f}"


def _digits(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)
