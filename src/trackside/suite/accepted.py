"""Accepted ratios: a file to commit, with one entry per workload and kind of machine, and what it says now.

A ratio is the workload's time over that of a reference timed in turn with it. It means something only on the
same kind of machine with the same reference; elsewhere the answer is `not-comparable`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import trackside
from trackside.machine.facts import MachineFacts, gpu_numbered
from trackside.records.check import Change
from trackside.records.devices import gpu_index
from trackside.records.errors import TracksideError
from trackside.stats.intervals import t_interval
from trackside.stats.special import t_quantile
from trackside.stats.verdict import PROOF
from trackside.store.files import read_json, write_json
from trackside.suite.pace import Pace
from trackside.suite.suite_file import Entry
from trackside.workload import formats

__all__ = ["AcceptedFile", "Judgement", "accept", "incomparable", "judge", "machine_kind", "reference_digest"]

SCHEMA: Final = "trackside.accepted/1"
_SHOWN: Final = 0.95
# What a ratio may move from one invocation to the next for reasons that its pairs do not show (where memory
# lies, how warm the machine is), as a standard deviation. Generous: a missed percent is not a false alarm.
_SESSION: Final = {"cpu": 0.01, "cuda": 0.003}
# Student's t is the normal distribution there, and its quantile loses its digits far beyond.
_MOST_FREEDOM: Final = 10_000

Outcome = Literal["unchanged", "faster", "slower", "inconclusive", "not-comparable"]


@dataclass(frozen=True)
class Judgement:
    """What an accepted ratio and the present one say together."""

    outcome: Outcome
    changes: list[Change]
    reasons: list[str]


def machine_kind(machine: MachineFacts, device: str, threads: int) -> dict[str, Any]:
    """What must be the same for two ratios to be held against each other.

    No kernel, host name or driver of what is not used: two machines of one kind differ in those.
    """
    cpu, software = machine.cpu, machine.software
    kind: dict[str, Any] = {
        "device": "cpu" if device == "cpu" else "cuda",
        "cpu": cpu.model,
        # Clouds give processors of several generations one name.
        "isa": " ".join(cpu.isa),
        "caches": " ".join(f"L{one.level} {one.kind} {one.bytes >> 10} KiB" for one in cpu.caches),
        "cpus": len(cpu.allowed),
        "threads": threads,
        "virtualisation": machine.virtualisation,
        "python": ".".join((software.python or "").split(".")[:2]) or None,
        "torch": software.torch,
        "numpy": software.numpy,
    }
    number = gpu_index(device)
    if number is not None:
        # CUDA may number otherwise than NVML.
        named = gpu_numbered(machine, number)
        gpu = next((one for one in machine.gpus if named in (one.uuid, one.index)), None)
        kind |= {
            "gpu": gpu.name if gpu else None,
            "driver": software.nvidia_driver,
            "cuda": software.cuda_driver,
            "triton": software.triton,
        }
    return kind


def reference_digest(path: Path) -> str:
    """One SHA-256 of the reference and the modules beside it that it imports."""
    files = formats.describe(path, "baseline").files
    together = "\n".join(sorted(files.values()))
    return hashlib.sha256(together.encode()).hexdigest()


class AcceptedFile:
    """The file of accepted ratios, read whole and written whole.

    Raises:
        TracksideError: kind `store`, when the file is there and is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._document: dict[str, Any] = {"schema": SCHEMA, "workloads": {}}
        remedy = "restore the file from version control, or delete it and run: trackside check --accept"
        try:
            found = read_json(path)
        except FileNotFoundError:
            return
        except TracksideError as error:
            raise TracksideError("store", error.message, remedy) from error
        workloads = found.get("workloads")
        if found.get("schema") != SCHEMA or not isinstance(workloads, dict):
            raise TracksideError(
                "store",
                f"found {found.get('schema')!r} in {path}; needed: {SCHEMA}",
                f"read it with the release that wrote it, or {remedy}",
            )
        for name, entries in workloads.items():
            if not isinstance(entries, list) or not all(map(_is_whole, entries)):
                raise TracksideError(
                    "store",
                    f"found an entry of `{name}` in {path} that is not whole, or contradicts itself",
                    remedy,
                )
        self._document = found

    def entries(self, name: str) -> list[dict[str, Any]]:
        """All that was accepted of a workload, one for each kind of machine."""
        found: list[dict[str, Any]] = self._document["workloads"].get(name, [])
        return found

    def put(self, name: str, entry: Mapping[str, Any]) -> None:
        """Replace what was accepted on this kind of machine; other kinds keep theirs."""
        others = [one for one in self.entries(name) if one["machine"] != entry["machine"]]
        self._document["workloads"][name] = [*others, dict(entry)]

    def write(self) -> None:
        try:
            write_json(self.path, self._document)
        except OSError as error:
            raise TracksideError(
                "store",
                f"cannot write {self.path}: {error.strerror}",
                "make its folder writable, or name another file: `accepted` in [suite]",
            ) from error


def _is_whole(entry: Any) -> bool:
    try:
        numbers = [
            number
            for shape in entry["shapes"]
            for number in (shape["mean"], shape["standard_error"], shape["pairs"])
        ]
        sound = all(math.isfinite(number) for number in numbers) and all(
            shape["pairs"] >= 2 and shape["standard_error"] >= 0 and _agrees(shape)
            for shape in entry["shapes"]
        )
        return bool(isinstance(entry["machine"], dict) and isinstance(entry["reference"], str) and sound)
    except (KeyError, TypeError, ValueError):
        return False


def _agrees(shape: Mapping[str, Any]) -> bool:
    """Whether what a person reads in a review, ratio and interval, is what decides."""
    mean, pairs = shape["mean"], shape["pairs"]
    half = t_quantile((1 + _SHOWN) / 2, min(pairs - 1, _MOST_FREEDOM)) * shape["standard_error"]
    return all(
        math.isclose(math.log(shape[name]), wanted, rel_tol=1e-6, abs_tol=1e-6)
        for name, wanted in (("low", mean - half), ("ratio", mean), ("high", mean + half))
    )


def accept(entry: Entry, pace: Pace, machine: Mapping[str, Any], reference: str) -> dict[str, Any]:
    """The entry to put into the file."""
    return {
        "machine": dict(machine),
        "reference": reference,
        "shapes": [_summary(shape.shape, shape.log_ratios) for shape in pace.shapes],
        "file": entry.candidate.name,
        "accepted": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": trackside.__version__,
    }


def _summary(shape: Any, log_ratios: Sequence[float]) -> dict[str, Any]:
    shown = t_interval(log_ratios, _SHOWN)
    return {
        "shape": shape,
        "ratio": math.exp(shown.mid),
        "low": math.exp(shown.low),
        "high": math.exp(shown.high),
        "mean": shown.mid,
        "standard_error": _standard_error(log_ratios),
        "pairs": len(log_ratios),
    }


def _standard_error(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def incomparable(
    entries: Sequence[Mapping[str, Any]], machine: Mapping[str, Any], reference: str
) -> str | None:
    """Why nothing that was accepted says anything here; None where something does."""
    same = _of_kind(entries, machine)
    if not same:
        return _which_differs(entries, machine)
    if same[-1]["reference"] != reference:
        return "the reference has changed since: accept again, with the workload as it was"
    return None


def _of_kind(entries: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in entries if one["machine"] == dict(machine)]


def judge(
    entries: Sequence[Mapping[str, Any]],
    pace: Pace,
    machine: Mapping[str, Any],
    reference: str,
    delta: float,
) -> Judgement:
    """Whether the workload became slower by more than delta, in units of its reference."""
    reason = incomparable(entries, machine, reference)
    if reason is not None:
        return Judgement("not-comparable", [], [reason])
    accepted = _of_kind(entries, machine)[-1]
    before = {_key(shape["shape"]): shape for shape in accepted["shapes"]}
    missing = [shape.shape for shape in pace.shapes if _key(shape.shape) not in before]
    if missing:
        return Judgement("not-comparable", [], [f"shape {missing[0]} was never accepted: accept again"])
    session = _SESSION["cuda" if machine.get("device") == "cuda" else "cpu"]
    changes, outcomes, reasons = [], [], []
    for shape in pace.shapes:
        change, outcome = _one(before[_key(shape.shape)], shape.log_ratios, delta, session)
        changes.append(change.model_copy(update={"shape": shape.shape}))
        outcomes.append(outcome)
    if pace.disturbed:
        return Judgement("inconclusive", changes, [f"{pace.disturbed}: run again on a quieter machine"])
    worst = next(o for o in ("slower", "inconclusive", "unchanged", "faster") if o in outcomes)
    if worst == "inconclusive":
        reasons.append(
            f"the interval of the change reaches across the threshold of {delta:.1%}: "
            "a larger `budget`, a quieter machine or a larger `delta` decides"
        )
    elif worst == "faster":
        reasons.append("faster than accepted: `trackside check --accept` makes this the standard")
    # A note alone decides nothing; but who is told of a regression should know it.
    if worst in ("slower", "inconclusive"):
        reasons += pace.notes
    return Judgement(worst, changes, reasons)


def _one(
    accepted: Mapping[str, Any], now: Sequence[float], delta: float, session: float
) -> tuple[Change, Outcome]:
    """Welch's interval of the difference of two means, each with the spread of its pairs and its session."""
    difference = math.fsum(now) / len(now) - accepted["mean"]
    variances = (_standard_error(now) ** 2, accepted["standard_error"] ** 2)
    counts = (len(now), accepted["pairs"])
    error = math.sqrt(sum(variances) + 2 * session**2)
    shares = math.fsum(v**2 / (n - 1) for v, n in zip(variances, counts, strict=True))
    freedom = max(1, min(_MOST_FREEDOM, math.floor(error**4 / shares))) if shares else _MOST_FREEDOM
    shown, proof = (t_quantile((1 + c) / 2, freedom) * error for c in (_SHOWN, PROOF))
    change = Change(
        ratio=math.exp(difference), low=math.exp(difference - shown), high=math.exp(difference + shown)
    )
    margin = math.log1p(delta)
    # A change is called one at the confidence that compare wants for a difference.
    if difference - proof > margin:
        return change, "slower"
    if difference + proof < -margin:
        return change, "faster"
    if difference + shown <= margin:
        return change, "unchanged"
    return change, "inconclusive"


def _key(shape: Any) -> str:
    return repr(shape)


def _which_differs(entries: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> str:
    if not entries:
        return "nothing was accepted yet: run `trackside check --accept` and commit its file"
    # The nearest kind is the one that says most.
    nearest = min(entries, key=lambda one: sum(one["machine"].get(k) != v for k, v in machine.items()))
    then = nearest["machine"]
    names = [name for name in machine if then.get(name) != machine[name]]
    differs = ", ".join(f"{name} {then.get(name)} → {machine[name]}" for name in names)
    return f"accepted on another kind of machine ({differs}): run `trackside check --accept` here too"
