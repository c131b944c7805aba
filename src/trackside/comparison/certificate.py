"""Certificates after the fact: the seal of a record, and what has changed since it was written."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

import trackside
from trackside.comparison.command_identity import identify
from trackside.machine.facts import MachineFacts, fingerprint
from trackside.machine.facts import facts as machine_facts
from trackside.records.compare import CompareRecord, FileIdentity, Speedup
from trackside.records.errors import TracksideError
from trackside.records.verify import Rerun, VerifyItem, VerifyRecord
from trackside.workload import formats

__all__ = ["check", "compare_again", "rerun_item", "seal", "seal_of"]

Progress = Callable[[dict[str, Any]], None]

_SOFTWARE: Final = {
    "torch": "torch",
    "triton": "triton",
    "numpy": "numpy",
    "python": "python",
    "nvidia_driver": "NVIDIA driver",
}
_SHOWN_DIGITS: Final = 12


def seal(record: CompareRecord) -> CompareRecord:
    """The record with its own digest in it, to be called last before it is written.

    The seal finds damage and careless edits. It is no signature: whoever can write the file can seal it anew,
    so quote the file's SHA-256 (`trackside runs show`) where others cannot reach it.
    """
    return record.model_copy(update={"seal": seal_of(record.to_dict())})


def seal_of(document: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of a record, its `seal` left out."""
    plain = {name: value for name, value in document.items() if name != "seal"}
    return hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()


def check(document: Mapping[str, Any], machine: MachineFacts | None = None) -> VerifyRecord:
    """Hold a stored compare record against the files, the machine and the versions of now.

    Raises:
        TracksideError: kind `store`, when it is no compare record.
    """
    record = CompareRecord.from_dict(document)
    machine = machine or machine_facts()
    files = [*_files("baseline", record), *_files("candidate", record)]
    items = [
        _certified(record),
        _sealed(document),
        *files,
        _inputs(record, files),
        _machine(record, machine),
        *_versions(record, machine),
    ]
    return _summary(record, items)


def _summary(record: CompareRecord, items: list[VerifyItem], rerun: Rerun | None = None) -> VerifyRecord:
    return VerifyRecord(
        schema="trackside.verify/1",
        run_id=record.run_id,
        holds=all(item.status == "pass" for item in items),
        verdict=record.verdict,
        certificate=record.certificate,
        items=items,
        changed=[item.id for item in items if item.status == "fail"],
        unknown=[item.id for item in items if item.status == "unknown"],
        rerun=rerun,
    )


# -- what it rests on --------------------------------------------------------------------------------------


def _certified(record: CompareRecord) -> VerifyItem:
    if record.certified:
        reservations = " with reservations" if record.certificate == "reduced" else ""
        detail = f"certified `{record.verdict}`{reservations} on {record.started}"
        return VerifyItem(id="certified", status="pass", detail=detail)
    why = f": {record.reasons[0]}" if record.reasons else ""
    return VerifyItem(
        id="certified", status="fail", detail=f"the run was never certified; it ended `{record.verdict}`{why}"
    )


def _sealed(document: Mapping[str, Any]) -> VerifyItem:
    stored = document.get("seal")
    if not isinstance(stored, str):
        return VerifyItem(id="record", status="unknown", detail="the record was written without a seal")
    now = seal_of(document)
    same = now == stored
    return VerifyItem(
        id="record",
        status="pass" if same else "fail",
        detail="the record is as it was written" if same else "the record was altered after it was sealed",
        then=stored,
        now=now,
    )


def _files(role: str, record: CompareRecord) -> list[VerifyItem]:
    identity: FileIdentity | None = getattr(record, role)
    if identity is None:
        return [VerifyItem(id=role, status="unknown", detail="the record does not say what was compared")]
    now = _present(role, identity, record)
    if not identity.files:
        return [
            _file_item(
                f"{role}:{identity.path}", identity.path, identity.sha256, _digest(_path(identity, record))
            )
        ]
    items = [
        _file_item(f"{role}:{path}", path, digest, now[path] if path in now else _digest(Path(path)))
        for path, digest in identity.files.items()
    ]
    for path in sorted(now.keys() - identity.files.keys()):
        detail = f"{path} is now part of the {role} and was not then"
        items.append(VerifyItem(id=f"{role}:{path}", status="fail", detail=detail, now=now[path]))
    return items


def _present(role: str, identity: FileIdentity, record: CompareRecord) -> dict[str, str]:
    """The files that the same path or command would be made of today; empty where that cannot be told."""
    try:
        if identity.format == "command":
            outputs = record.options.get("outputs", [])
            return dict(identify(identity.path, role, _folder(record), outputs)["files"])
        format_ = identity.format if role == "candidate" else None
        return dict(formats.describe(_path(identity, record), role, format_).files)  # type: ignore[arg-type]
    except TracksideError:
        return {}


def _file_item(id: str, path: str, then: str, now: str | None) -> VerifyItem:
    if now is None:
        return VerifyItem(id=id, status="fail", detail=f"{path} is gone", then=then)
    same = now == then
    detail = (
        f"{path} is unchanged"
        if same
        else f"{path} changed: {then[:_SHOWN_DIGITS]}… then, {now[:_SHOWN_DIGITS]}… now"
    )
    return VerifyItem(id=id, status="pass" if same else "fail", detail=detail, then=then, now=now)


def _inputs(record: CompareRecord, files: list[VerifyItem]) -> VerifyItem:
    """Inputs have no file of their own: what draws them from a seed is the baseline."""
    mine = [item for item in files if item.id.partition(":")[0] == "baseline"]
    bad = next((item for item in mine if item.status != "pass"), None)
    where = (
        "the command line and the files it names define the inputs"
        if record.baseline is not None and record.baseline.format == "command"
        else "the baseline's file defines inputs, reference and tolerance"
    )
    if bad is None:
        return VerifyItem(id="inputs", status="pass", detail=f"{where}, and it is unchanged")
    return VerifyItem(id="inputs", status=bad.status, detail=f"{where}: {bad.detail}")


def _machine(record: CompareRecord, machine: MachineFacts) -> VerifyItem:
    then = record.environment.get("fingerprint")
    now = fingerprint(machine)
    if not isinstance(then, str):
        return VerifyItem(
            id="machine", status="unknown", detail="the record does not name its machine", now=now
        )
    if then == now:
        return VerifyItem(id="machine", status="pass", detail="the same machine", then=then, now=now)
    known = {
        "processor": (record.environment.get("cpu"), machine.cpu.model),
        "GPUs": (record.environment.get("gpus"), [gpu.name for gpu in machine.gpus]),
        "kernel": (record.environment.get("kernel"), machine.kernel),
    }
    differs = [f"{what} {old} then, {new} now" for what, (old, new) in known.items() if old != new]
    detail = "; ".join(differs) or "memory size, core count, driver or virtualisation differ"
    return VerifyItem(id="machine", status="fail", detail=f"another machine: {detail}", then=then, now=now)


def _versions(record: CompareRecord, machine: MachineFacts) -> list[VerifyItem]:
    items = [_version_item("trackside", record.version, trackside.__version__)]
    recorded = record.environment.get("software")
    for name, shown in _SOFTWARE.items():
        now = getattr(machine.software, name)
        if not isinstance(recorded, dict) or name not in recorded:
            detail = f"the record does not say which {shown} was used; {now or 'none'} now"
            items.append(VerifyItem(id=f"version:{name}", status="unknown", detail=detail, now=now))
        else:
            items.append(_version_item(name, recorded[name], now, shown))
    return items


def _version_item(name: str, then: str | None, now: str | None, shown: str | None = None) -> VerifyItem:
    label = shown or name
    same = then == now
    detail = (
        f"{label} {now}"
        if same and now
        else f"no {label}"
        if same
        else f"{label} {then or 'none'} then, {now or 'none'} now"
    )
    return VerifyItem(
        id=f"version:{name}", status="pass" if same else "fail", detail=detail, then=then, now=now
    )


# -- again ---------------------------------------------------------------------------------------------------


def compare_again(
    document: Mapping[str, Any], found: VerifyRecord, progress: Progress = lambda event: None
) -> VerifyRecord:
    """Make the comparison again with its recorded options, and add whether the two agree.

    Raises:
        TracksideError: kind `unsupported` on another machine, kind `workload` when a file changed.
    """
    status = {item.id: item.status for item in found.items}
    if status["machine"] == "fail":
        detail = next(item.detail for item in found.items if item.id == "machine")
        raise TracksideError(
            "unsupported",
            f"cannot repeat run {found.run_id} here: {detail}",
            "repeat it where it was made, or run `trackside compare` for a certificate of this machine",
        )
    record = CompareRecord.from_dict(document)
    gone = [id for id in found.changed if id.partition(":")[0] in ("baseline", "candidate")]
    if gone:
        raise TracksideError(
            "workload",
            f"will not repeat run {found.run_id}: {gone[0].partition(':')[2]} is not what was compared",
            "restore the file, or run `trackside compare` on what is there now",
        )
    again = _run(record, progress)
    rerun = rerun_item(record, again)
    item = VerifyItem(id="rerun", status="pass" if rerun.agrees else "fail", detail=rerun.detail)
    return _summary(record, [*found.items, item], rerun)


def _run(record: CompareRecord, progress: Progress) -> CompareRecord:
    options = dict(record.options)
    # The store of now, not the one that the record was written to.
    options["store"] = None
    assert record.baseline is not None
    assert record.candidate is not None
    if record.baseline.format == "command":
        from trackside.comparison.commands import CommandOptions, run_commands

        options["folder"] = _folder(record)
        options["outputs"] = tuple(options["outputs"])
        return run_commands(CommandOptions(**_known(CommandOptions, options)), progress)
    from trackside.comparison.trial import Options, run_trial

    options["baseline"] = _path(record.baseline, record)
    options["candidate"] = _path(record.candidate, record)
    options["disabled"] = frozenset(options.get("disabled", ()))
    options["unprotected"] = tuple(options.get("unprotected", ()))
    return run_trial(Options(**_known(Options, options)), progress)


def _known(kind: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options that this release has; another one may have recorded more."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in options.items() if name in names}


def rerun_item(old: CompareRecord, new: CompareRecord) -> Rerun:
    """Whether two results of one comparison agree: same verdict, ratios apart by no more than chance or δ."""
    agrees, detail = _agreement(old, new)
    return Rerun(run_id=new.run_id, verdict=new.verdict, speedup=new.speedup, agrees=agrees, detail=detail)


def _agreement(old: CompareRecord, new: CompareRecord) -> tuple[bool, str]:
    if old.verdict != new.verdict:
        return False, f"`{old.verdict}` then, `{new.verdict}` now"
    if old.speedup is None or new.speedup is None:
        return True, f"`{new.verdict}` again, without a ratio to compare"
    then, now = old.speedup, new.speedup
    spans = f"{_span(then)} then, {_span(now)} now"
    apart = abs(math.log(then.ratio / now.ratio))
    # Two independent intervals: their difference has the half widths' root of squares, not their sum.
    chance = math.hypot(*(math.log(s.high / s.low) / 2 for s in (then, now)))
    delta = math.log1p(float(new.statistics.get("delta", 0.0)))
    if apart <= max(chance, delta):
        return True, f"`{new.verdict}` again: {spans}"
    return False, f"the ratios differ by {math.expm1(apart):.1%}, more than chance allows: {spans}"


def _span(speed: Speedup) -> str:
    return f"{speed.ratio:.3f}x [{speed.low:.3f}, {speed.high:.3f}]"


# -- where things are ----------------------------------------------------------------------------------------


def _folder(record: CompareRecord) -> Path:
    return Path(record.environment.get("folder") or record.options.get("folder") or os.getcwd())


def _path(identity: FileIdentity, record: CompareRecord) -> Path:
    """Where the compared file is: the recorded path, found again when it was relative to another folder."""
    path = Path(identity.path)
    if path.is_absolute():
        return path
    if "folder" in record.environment:
        return _folder(record) / path
    for known in identity.files:
        if known == str(path.resolve()):
            return path.resolve()
    fitting = [known for known in identity.files if Path(known).parts[-len(path.parts) :] == path.parts]
    fitting += [known for known, digest in identity.files.items() if digest == identity.sha256]
    return Path(fitting[0]) if fitting else path.resolve()


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
