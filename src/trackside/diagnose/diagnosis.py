"""All rules over one program's evidence: findings with their gain, ranked, and what they gain together."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module

from trackside.diagnose.evidence import Evidence
from trackside.diagnose.rule import RULES, Draft, Rule
from trackside.diagnose.workbench import Reading
from trackside.records.profile import Finding, Gain, Trust
from trackside.trace.edits import Edit
from trackside.trace.what_if import predict

__all__ = ["FAMILIES", "LEAST_GAIN", "Diagnosis", "all_rules", "diagnose"]

FAMILIES = (
    "host",
    "repeated",
    "loading",
    "compiling",
    "arithmetic",
    "expressions",
    "products",
    "training",
    "processor",
    "device",
    "copies",
    "kernels",
    "counted",
    "distributed",
)
"""Modules with rules."""
# Below this a finding is not worth reading, nor would a comparison find it.
LEAST_GAIN = 0.01
# A range is no narrower than this on either side, as a share of the step and of the gain: two runs of one
# program differ as much.
_SURE, _SURE_SHARE = 0.015, 0.25
# A range is no wider than the larger of these: one that says everything says nothing.
_WIDEST = 0.05
_EXTREMES: tuple[Reading, ...] = ("least", "most")


@dataclass(frozen=True)
class Diagnosis:
    """What was found."""

    findings: list[Finding]
    """The largest gain first."""
    together: Gain | None
    """All of them at once, through the critical path."""
    failed: list[Trust]
    """Rules that broke down over this program."""


@dataclass(frozen=True)
class _Priced:
    rule: Rule
    draft: Draft
    gain: Gain


def all_rules() -> dict[str, Rule]:
    """Every rule by its id."""
    for family in FAMILIES:
        import_module(f"trackside.diagnose.{family}")
    return RULES


def diagnose(evidence: Evidence, least: float = LEAST_GAIN) -> Diagnosis:
    """Ask every rule that speaks of this kind of program.

    Args:
        evidence: of one program.
        least: findings that gain less of a step are left out.
    """
    priced: list[_Priced] = []
    failed: list[Trust] = []
    where = {"device", "both"} if evidence.has_device else {"host", "both"}
    for rule in all_rules().values():
        if rule.on not in where:
            continue
        try:
            drafts = _drafts(evidence, rule)
        except Exception as error:
            # One rule's defect must not cost the others' findings.
            failed.append(
                Trust(
                    what=f"rule {rule.id}",
                    effect=f"it broke down over this program ({type(error).__name__}: {error})",
                    remedy=None,
                )
            )
            continue
        priced += [_Priced(rule, draft, _gain(evidence, draft, others)) for draft, others in drafts]
    kept = _without_repeats([one for one in priced if one.gain.mid >= least])
    kept.sort(key=lambda one: -one.gain.mid)
    return Diagnosis([_finding(evidence, one) for one in kept], _together(evidence, kept), failed)


def _drafts(evidence: Evidence, rule: Rule) -> list[tuple[Draft, list[Draft]]]:
    """What a rule found; beside each the same by the least and the most that the workbench leaves open."""
    workbench = evidence.workbench
    if workbench is None:
        return [(draft, []) for draft in rule.look(evidence)]
    before = workbench.asked
    drafts = list(rule.look(evidence))
    if not drafts or workbench.asked == before:
        return [(draft, []) for draft in drafts]
    others: list[dict[object, Draft]] = []
    for reading in _EXTREMES:
        with workbench.read(reading):
            others.append({_place(draft): draft for draft in rule.look(evidence)})
    # Where a rule then has nothing to say the change may gain nothing.
    return [
        (draft, [other.get(_place(draft), replace(draft, edits=[])) for other in others]) for draft in drafts
    ]


def _place(draft: Draft) -> object:
    return draft.line or draft.title


def _gain(evidence: Evidence, draft: Draft, others: Sequence[Draft]) -> Gain:
    """What a draft saves, anything between what the `others` say of the same place included."""

    def of(edits: Sequence[Edit] | None, otherwise: float) -> float:
        return _saved(evidence, edits, draft.rare) if edits is not None else otherwise

    mid = of(draft.edits, 0.0) if draft.saves is None else draft.saves[0]
    doubt = _doubt(evidence, draft) if draft.saves is None else 0.0
    # What the steps themselves vary by, a share of them does too.
    unsure = max(_SURE, doubt, mid * min(0.5, _SURE_SHARE + evidence.step_spread / 2))
    low = min(of(draft.least, mid * (1 - draft.spread)), mid - unsure)
    most = of(draft.most, mid * (1 + draft.spread)) if draft.saves is None else draft.saves[1]
    high = max(most, mid + unsure)
    for other in others if draft.saves is None else ():
        saved = of(other.edits, 0.0)
        low, high = min(low, saved - _SURE), max(high, saved + _SURE)
    # Where the range is too wide it is drawn together around the estimate.
    widest = max(_WIDEST, mid)
    if high - low > widest:
        inner = widest / (high - low)
        low, high = mid - (mid - low) * inner, mid + (high - mid) * inner
    # What is left of the step may be half of what is predicted; that nothing is left never is.
    return Gain(low=max(0.0, low), mid=mid, high=min(high, (1 + mid) / 2))


def _saved(evidence: Evidence, edits: Sequence[Edit], rare: bool) -> float:
    """Where it is not known how quick the host is, the middle of what the quickest and the slowest would."""
    if rare:
        return predict(evidence.as_traced.graph, edits, evidence.before_as_traced).gain
    slow = predict(evidence.traced.graph, edits, evidence.before).gain
    if evidence.light is None:
        return slow
    return (slow + predict(evidence.light, edits, evidence.before_light).gain) / 2


def _doubt(evidence: Evidence, draft: Draft) -> float:
    """How far the gain may lie from its middle because it is not known how quick the host is."""
    if draft.rare or evidence.light is None:
        return 0.0
    slow = predict(evidence.traced.graph, draft.edits, evidence.before).gain
    return abs(_saved(evidence, draft.edits, rare=False) - slow)


def _without_repeats(priced: list[_Priced]) -> list[_Priced]:
    """Without what a more particular rule says about the same line, and the same rule there twice."""
    found: dict[tuple[str, object], _Priced] = {}
    for one in priced:
        key = one.rule.id, _place(one.draft)
        if key not in found or found[key].gain.mid < one.gain.mid:
            found[key] = one
    said = {(one.rule.id, one.draft.line) for one in found.values() if one.draft.line is not None}
    return [
        one
        for one in found.values()
        if not any((other, one.draft.line) in said for other in one.rule.yields_to)
    ]


def _together(evidence: Evidence, kept: list[_Priced]) -> Gain | None:
    if not kept:
        return None
    left = 1.0
    for rare in (False, True):
        edits = [edit for one in kept if one.draft.rare == rare for edit in one.draft.edits]
        left *= 1 - _saved(evidence, edits, rare)
    for one in kept:
        left *= 1 - (one.draft.saves[0] if one.draft.saves is not None else 0.0)
    mid = 1 - left
    alone = sum(one.gain.mid for one in kept)
    if alone <= 0:
        return Gain(low=0.0, mid=0.0, high=max(one.gain.high for one in kept))
    low = mid * sum(one.gain.low for one in kept) / alone
    high = mid * sum(one.gain.high for one in kept) / alone
    return Gain(low=low, mid=mid, high=min(high, (1 + mid) / 2))


def _finding(evidence: Evidence, one: _Priced) -> Finding:
    line = one.draft.line
    return Finding(
        id=one.rule.id,
        title=one.draft.title,
        file=line.file if line is not None else None,
        line=line.line if line is not None else None,
        gain=one.gain,
        confidence=one.draft.confidence,
        evidence=list(one.draft.evidence),
        fix=one.draft.fix,
        diff=one.draft.diff,
        item=one.rule.item,
        prove=_prove(evidence),
    )


def _prove(evidence: Evidence) -> str | None:
    """Compares the program with a changed copy of it, `_new` by name; None where it cannot be run again."""
    match evidence.command:
        # A trace or a notebook, and a program that came through stdin.
        case [] | ["-", *_]:
            return None
        case ["-m", module, *arguments]:
            programs = (["-m", module], ["-m", f"{module}_new"])
        case [script, *arguments]:
            stem, suffix = os.path.splitext(script.rstrip("/"))
            programs = ([script], [f"{stem}_new{suffix}"])
    start = ["python"]
    if evidence.ranks.times:
        hosts = [one.host for one in evidence.ranks.times]
        start = ["torchrun", "--nproc-per-node", str(hosts.count(hosts[0]))]
    before, after = (shlex.quote(shlex.join([*start, *program, *arguments])) for program in programs)
    return f"trackside compare --command {before} {after}"
