"""The catalogue of checks and the ledger that a trial fills: what each seeks and saw, what failing means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

__all__ = ["CATALOGUE", "Check", "Ledger", "Result", "Stop"]

Status = Literal["pass", "warn", "fail", "unknown", "not_applicable"]
Outcome = Literal["rejected", "not-comparable", "inconclusive"]


@dataclass(frozen=True)
class Check:
    """One thing that must hold before a speedup is believed."""

    id: str
    looks_for: str
    catches: str
    on_fail: Outcome


def _check(id: str, on_fail: Outcome, looks_for: str, catches: str) -> tuple[str, Check]:
    return id, Check(id, looks_for, catches, on_fail)


CATALOGUE: Final[dict[str, Check]] = dict(
    [
        _check(
            "worker-survives",
            "rejected",
            "The candidate loads, sets up and answers every call within its time and memory.",
            "exceptions, crashes, endless loops, os._exit, running out of memory",
        ),
        _check(
            "protocol-intact",
            "rejected",
            "Only our own messages arrive from the candidate's process, and nothing is written past a slot.",
            "forged results, printed verdicts, bytes written to every descriptor",
        ),
        _check(
            "harness-intact",
            "rejected",
            "No torch mode, trace or profile hook is active when outputs are read, timing functions are the "
            "originals, and no code of the candidate's runs when its process is thawed.",
            "a dispatch mode that does the work inside our copy, patched timers and events, "
            "replaced tensor methods, a handler of SIGCONT",
        ),
        _check(
            "output-structure",
            "rejected",
            "Same nesting, exact Tensor type, dtype, shape and device as the baseline's output, "
            "over memory of its own.",
            "lazy subclasses, meta and CPU outputs, expanded views, other dtypes",
        ),
        _check(
            "aliasing",
            "rejected",
            "Outputs share memory with inputs, state and each other exactly where the baseline's do.",
            "returning the input, two outputs over one buffer",
        ),
        _check(
            "output-matches-oracle",
            "rejected",
            "Timed outputs agree with the baseline's, and every checked one is as close to the float64 "
            "oracle as the baseline's, in every bin of magnitude.",
            "replayed and stale answers, unfinished work, lower precision, skipped rows, constants",
        ),
        _check(
            "inputs-unchanged",
            "rejected",
            "Inputs that the baseline leaves alone are bit-identical after the call.",
            "scribbling on inputs, swapping data for easier data",
        ),
        _check(
            "state-matches",
            "rejected",
            "State that the baseline updates is updated alike; the rest is left alone.",
            "skipped optimizer steps, gradients or running statistics",
        ),
        _check(
            "late-writes",
            "rejected",
            "An output does not change after the call returned, nor, on a CPU, with the inputs' memory.",
            "threads, streams and processes that finish later, an input mapped at a second address",
        ),
        _check(
            "output-reuse",
            "rejected",
            "An earlier output is not overwritten by later calls, unless the baseline declares or does that.",
            "one shared output buffer, merged calls",
        ),
        _check(
            "holds-on-probes",
            "rejected",
            "The output is right on inputs off the beaten distribution that keep its structure, and on sizes "
            "that the task tests. Where such inputs cannot occur, `domain` in the baseline's file says so.",
            "relu on positive inputs returned as is, sampled fingerprints, ranges hard-coded",
        ),
        _check(
            "clocks-agree",
            "rejected",
            "The judge's own clock, which no candidate can reach, supports what the worker's clock says.",
            "patched clocks and events, work outside the timed region",
        ),
        _check(
            "above-floor",
            "rejected",
            "The time is not below what the necessary bytes and the declared work take at this machine's "
            "measured ceilings.",
            "work that cannot have been done",
        ),
        _check(
            "environment-same",
            "not-comparable",
            "Both arms end with the same global flags, threads, affinity, device and versions, and with the "
            "files that the record names.",
            "TF32 switched on, more threads, another core, a garbage collector or malloc that was told "
            "otherwise, a file edited meanwhile",
        ),
        _check(
            "no-leftovers",
            "not-comparable",
            "Nothing of the candidate runs while it is frozen.",
            "children left spinning to slow the baseline",
        ),
        _check(
            "baseline-undisturbed",
            "not-comparable",
            "The baseline is as fast beside the candidate as alone, before and after.",
            "sabotage of the other arm, a busy machine",
        ),
        _check(
            "total-time-agrees",
            "inconclusive",
            "The sum of all times tells the same story as the median.",
            "work pushed into rare slow calls",
        ),
        _check(
            "machine-quiet",
            "inconclusive",
            "The machine was quiet enough: few disturbed quads, evenly spread, little stolen time, no "
            "throttling.",
            "noise that looks like speed",
        ),
        _check(
            "parameters-match",
            "inconclusive",
            "Both arms hold the same parameter values, renamed or repacked at most.",
            "weights that cannot be compared",
        ),
        _check(
            "oracle-available",
            "inconclusive",
            "A float64 (for 16-bit tasks: float32) oracle runs and its bits are really there.",
            "tasks that cannot be checked",
        ),
        _check(
            "baseline-right",
            "inconclusive",
            "The baseline itself agrees with its oracle.",
            "a broken baseline",
        ),
        _check(
            "task-is-sensitive",
            "inconclusive",
            "Zeros, a constant or a stale answer would be told apart on these inputs; no input tensor is the "
            "same in every draw and in every probe, and no state is all 0 or 1, an identity or a copy, or "
            "the candidate is right on other values of it too; and it is right with other values in all "
            "parameters that no call changes.",
            "tasks on which wrong answers look right",
        ),
        _check(
            "isolation",
            "inconclusive",
            "The candidate ran confined: namespaces, file and signal limits.",
            "a kernel that lacks them",
        ),
    ]
)
"""In the order in which results are shown."""


@dataclass
class Result:
    """What one check saw."""

    id: str
    status: Status
    detail: str
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "status": self.status,
            "detail": self.detail,
            **({"evidence": self.evidence} if self.evidence else {}),
        }


class Stop(Exception):
    """The verdict is known: no further measurement can change it."""

    def __init__(self, outcome: Outcome, check: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome, self.check, self.detail = outcome, check, detail


class Ledger:
    """Results so far.

    A check can be switched off, to show that it alone catches something; such a run is never certified.
    """

    def __init__(self, disabled: Iterable[str] = ()) -> None:
        self.results: dict[str, Result] = {}
        self.disabled = frozenset(disabled)
        self.suppressed: list[str] = []
        self.pending: list[Stop] = []

    def passed(self, id: str, detail: str, **evidence: Any) -> None:
        """Record a pass, unless the check has already warned or failed."""
        if id not in self.results or self.results[id].status == "pass":
            self._set(id, "pass", detail, evidence)

    def warned(self, id: str, detail: str, **evidence: Any) -> None:
        if id not in self.results or self.results[id].status != "fail":
            self._set(id, "warn", detail, evidence)

    def unknown(self, id: str, detail: str) -> None:
        self.results.setdefault(id, Result(id, "unknown", detail))

    def not_applicable(self, id: str, detail: str) -> None:
        self.results.setdefault(id, Result(id, "not_applicable", detail))

    def failed(self, id: str, detail: str, **evidence: Any) -> None:
        """Record a failure.

        Raises:
            Stop: when it proves the candidate wrong; other outcomes wait for `settle`, a rejection first.
        """
        if id in self.disabled:
            self.suppressed.append(id)
            self.results[id] = Result(id, "not_applicable", f"switched off; would have failed: {detail}")
            return
        self._set(id, "fail", detail, evidence)
        stop = Stop(CATALOGUE[id].on_fail, id, detail)
        if stop.outcome == "rejected":
            raise stop
        self.pending.append(stop)

    def settle(self) -> None:
        """Stop for what made the arms not comparable, or the answer unknowable."""
        for outcome in ("not-comparable", "inconclusive"):
            for stop in self.pending:
                if stop.outcome == outcome:
                    raise stop

    def to_records(self) -> list[dict[str, Any]]:
        """Every check of the catalogue; one that was not reached says so."""
        return [
            (
                self.results.get(id) or Result(id, "unknown", "not reached: the verdict was known before")
            ).to_record()
            for id in CATALOGUE
        ]

    def _set(self, id: str, status: Status, detail: str, evidence: dict[str, Any]) -> None:
        assert id in CATALOGUE, id
        self.results[id] = Result(id, status, detail, evidence)
