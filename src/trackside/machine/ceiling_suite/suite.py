"""Runs the measuring programs, watches clocks meanwhile, and keeps what came out for each machine."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trackside
from trackside.machine.ceiling_suite.sentences import sentences
from trackside.machine.ceilings import KEPT, cannot_start
from trackside.machine.facts import MachineFacts, facts, fingerprint, gpu_numbered
from trackside.machine.telemetry import Kind, Recorder, Telemetry
from trackside.records.ceilings import Ceiling, CeilingsRecord, Skipped, Sustained
from trackside.records.devices import gpu_index
from trackside.records.errors import TracksideError, printable
from trackside.store.files import read_json, store_errors, write_json
from trackside.store.lock import DeviceLock, gpu_key
from trackside.store.lock_holders import holder_named
from trackside.store.runs import RunStore

__all__ = ["PLACES", "Options", "measured_ceilings"]

PLACES = ("cpu", "disk", "cuda")
# Raise when a method changes, so that older figures are measured again.
_METHOD_VERSION = 3
# Seconds of each measurement, and of the long run on a GPU: 27 of them within a minute.
_CPU_SECONDS, _DISK_SECONDS, _GPU_SECONDS, _SUSTAINED_SECONDS = 1.2, 1.2, 0.7, 8.0
# Clocks and power are those of a measurement's end: first data are made and kernels loaded, and sensors lag.
_SENSED_NS = 400_000_000
# A first import of torch and a first context take their time; without a word for so long a program hangs.
_SILENCE_SECONDS = 120.0
_DISK_BYTES, _DISK_SHARE = 512 << 20, 8
_MEMORY_SHARE, _MOST_MEMORY, _LEAST_MEMORY = 16, 1 << 30, 64 << 20
# Not pressure: the measuring programs load every CPU themselves.
_DISTURBING: tuple[Kind, ...] = ("steal", "quota")
_DISTURBING_A_GPU: tuple[Kind, ...] = (*_DISTURBING, "slowdown", "others")

Progress = Callable[[str, str], None]
"""Called with a place and what is being measured, or waited for, there."""
_Program = tuple[str, dict[str, Any]]
"""A module of this package, and what it is asked."""


@dataclass(frozen=True)
class Options:
    places: Sequence[str] = PLACES
    """`cpu`, `disk`, `cuda` for all GPUs, or `cuda:N`."""
    folder: Path = Path()
    """Whose disk is measured."""
    fresh: bool = False
    """Measure again, whatever is kept."""
    age: timedelta = timedelta(days=7)
    """How old kept figures may be."""
    store: Path | None = None
    scale: float = 1.0
    """Of the time for each measurement: less is quicker and wider."""


@dataclass
class _Found:
    ceilings: list[Ceiling] = field(default_factory=list)
    sustained: list[Sustained] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    disturbed: list[str] = field(default_factory=list)


def measured_ceilings(options: Options, progress: Progress = lambda place, what: None) -> CeilingsRecord:
    """What this machine does, measured now or within the allowed age.

    Raises:
        TracksideError: `usage` for an unknown place or a folder that is none, `device` where a measuring
            program failed, `store` where nothing can be kept.
    """
    machine = facts()
    places = _places(options.places, machine)
    disk = _file_system(options.folder) if "disk" in places else None
    store = RunStore(options.store)
    gpus = {place: gpu_numbered(machine, index) for place in places if (index := _gpu_of(place)) is not None}
    kept = store.root / "machine" / f"{KEPT}{_key(machine, places, disk)}.json"
    earlier = None if options.fresh else _kept(kept, options.age)
    # What torch computes differs between its versions, and what it cannot do may be cured by another.
    if earlier and earlier.gpus == gpus and earlier.software.get("torch") == machine.software.torch:
        return earlier
    programs = {place: _program(place, options, machine) for place in places}
    run = store.new_run("ceilings")
    began, found = time.monotonic(), _Found()
    record = CeilingsRecord(
        schema="trackside.ceilings/1",
        run_id=run.id,
        fingerprint=fingerprint(machine),
        places=places,
        gpus=gpus,
        ceilings=[],
        sustained=[],
        skipped=[],
        sentences=[],
        disk_folder=printable(str(options.folder.absolute())) if "disk" in places else None,
        software=asdict(machine.software),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=0.0,
        version=trackside.__version__,
    )
    try:
        for place, program in programs.items():
            _measure(place, program, machine, found, progress)
    except BaseException as error:
        failed = _filled(record, found, began, status="failed", error=_reason(error))
        with contextlib.suppress(TracksideError):
            store.write_record(run, failed.to_dict())
        raise
    record = _filled(record, found, began)
    store.write_record(run, record.to_dict())
    with store_errors(kept, "keep ceilings in"):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, record.to_dict())
    return record


def _filled(record: CeilingsRecord, found: _Found, began: float, **more: object) -> CeilingsRecord:
    """The record with what was found until now."""
    told = sentences(found.ceilings, found.sustained)
    seconds = round(time.monotonic() - began, 1)
    return record.model_copy(update={**vars(found), "sentences": told, "seconds": seconds, **more})


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    told = error.message if isinstance(error, TracksideError) else f"{type(error).__name__}: {error}"
    return printable(told)


def _places(asked: Sequence[str], machine: MachineFacts) -> list[str]:
    # As CUDA numbers them: CUDA_VISIBLE_DEVICES may hide some.
    numbers = range(len(machine.gpus))
    visible = [f"cuda:{n}" for n in numbers if isinstance(gpu_numbered(machine, n), str)]
    found: list[str] = []
    for place in asked:
        if place == "cuda":
            found += visible
            continue
        if place not in ("cpu", "disk") and f"cuda:{gpu_index(place)}" not in visible:
            raise _no_gpu(place, visible)
        found.append(place)
    if not found:
        raise _no_gpu("cuda", visible)
    return list(dict.fromkeys(found))


def _gpu_of(place: str) -> int | None:
    return gpu_index(place) if place.startswith("cuda") else None


def _no_gpu(wanted: str, visible: list[str]) -> TracksideError:
    return TracksideError(
        "device",
        f"found {', '.join(visible) or 'no GPU that CUDA may use'}; needed: {wanted}",
        "see `nvidia-smi` and CUDA_VISIBLE_DEVICES, or measure cpu and disk",
    )


def _file_system(folder: Path) -> int:
    """The number that the kernel gives the file system which a folder lies on."""
    try:
        found = folder.absolute().stat()
    except (OSError, ValueError) as error:
        raise _no_disk(folder, getattr(error, "strerror", None) or str(error)) from error
    if not stat.S_ISDIR(found.st_mode):
        raise _no_disk(folder, "it is not a folder")
    return found.st_dev


def _no_disk(folder: Path, why: str) -> TracksideError:
    # The working directory may be gone.
    with contextlib.suppress(OSError):
        folder = folder.absolute()
    return TracksideError(
        "usage",
        printable(f"cannot measure the disk of {folder}: {why}"),
        "name a folder that exists and that you may write to, with --folder",
    )


def _key(machine: MachineFacts, places: list[str], disk: int | None) -> str:
    named = [f"disk{disk}" if place == "disk" else place.replace(":", "") for place in places]
    return "-".join([fingerprint(machine), *named, f"v{_METHOD_VERSION}"])


def _kept(path: Path, age: timedelta) -> CeilingsRecord | None:
    try:
        record = CeilingsRecord.from_dict(read_json(path))
        old = datetime.now(UTC) - datetime.fromisoformat(record.measured_at)
    except (OSError, ValueError, TypeError, TracksideError):
        # Kept figures only save time: those that cannot be read are measured again.
        return None
    return record.model_copy(update={"cached": True}) if old <= age else None


def _lock_name(place: str, machine: MachineFacts) -> str:
    if not place.startswith("cuda"):
        return "cpu"
    return gpu_key(gpu_numbered(machine, gpu_index(place) or 0))


def _waiting(place: str, holder: Mapping[str, Any]) -> str:
    where = "this device" if place.startswith("cuda") else "the CPU"
    return f"waiting: {holder_named(holder)} measures on {where}"


def _measure(place: str, program: _Program, machine: MachineFacts, found: _Found, progress: Progress) -> None:
    index = _gpu_of(place)
    if index is not None and machine.software.torch is None:
        why = "torch is not installed: pip install 'trackside[torch]'"
        found.skipped.append(Skipped(place=place, name="gpu", title="all of it", why=why))
        return
    which = gpu_numbered(machine, index) if index is not None else None
    lock = DeviceLock(
        _lock_name(place, machine),
        verb="ceilings",
        on_wait=lambda holder: progress(place, _waiting(place, holder)),
    )
    with lock, Recorder(gpu_index=which, closely=which is not None) as recorder:
        answers = list(_answers(*program, place, progress))
        telemetry = recorder.stop()
    found.disturbed += _disturbed(place, telemetry)
    _collect(place, answers, telemetry, found)


def _disturbed(place: str, telemetry: Telemetry) -> list[str]:
    if not telemetry.times_ns.size:
        return []
    began, ended = int(telemetry.times_ns[0]), int(telemetry.times_ns[-1])
    kinds = _DISTURBING_A_GPU if place.startswith("cuda") else _DISTURBING
    return [f"{place}: {text}" for text in telemetry.disturbances(began, ended, kinds=kinds)]


def _collect(place: str, answers: list[dict[str, Any]], telemetry: Telemetry, found: _Found) -> None:
    # What is measured in rounds is told after each: the last holds them all, and stands in its place.
    ceilings: dict[str, Ceiling] = {}
    skipped: dict[str, Skipped] = {}
    for answer in answers:
        if "skipped" in answer:
            name = answer["skipped"]
            skipped[name] = Skipped(place=place, name=name, title=answer["title"], why=answer["why"])
        elif "result" in answer:
            row = answer["result"]
            began, ended = row.pop("began"), row.pop("ended")
            clocks = _clocks(telemetry, max(began, ended - _SENSED_NS), ended)
            ceilings.pop(row["name"], None)
            ceilings[row["name"]] = Ceiling(
                place=place, **row, sm_mhz=clocks.get("sm_mhz"), power_w=clocks.get("power_w")
            )
        elif "sustained" in answer:
            row = answer["sustained"]
            began, ended = row.pop("began"), row.pop("ended")
            clocks = _clocks(telemetry, began, ended)
            reasons = telemetry.window(began, ended)["reasons"]
            found.sustained.append(
                Sustained(
                    place=place,
                    **row,
                    sm_mhz=clocks.get("sm_mhz"),
                    power_w=clocks.get("power_w"),
                    temperature=clocks.get("temperature"),
                    slowdowns=sorted(name for name in reasons if name != "GpuIdle"),
                )
            )
    found.ceilings += ceilings.values()
    found.skipped += (row for name, row in skipped.items() if name not in ceilings)


def _program(place: str, options: Options, machine: MachineFacts) -> _Program:
    """What is to be run for a place; refuses what cannot be."""
    if place == "cpu":
        limits = [b for b in (machine.memory.total_bytes, machine.limits.memory_bytes) if b]
        most = int(options.scale * _MOST_MEMORY)
        size = min(most, *(b // _MEMORY_SHARE for b in limits)) if limits else _LEAST_MEMORY
        return "cpu_child", {"seconds": options.scale * _CPU_SECONDS, "bytes": max(size & ~0xFFFF, 1 << 20)}
    if place == "disk":
        return "disk_child", {
            "folder": str(options.folder.absolute()),
            "bytes": _file_bytes(options.folder, options.scale),
            "seconds": options.scale * _DISK_SECONDS,
            "index": 0 if isinstance(gpu_numbered(machine, 0), str) else None,
        }
    return "cuda_child", {
        "index": _gpu_of(place),
        "seconds": options.scale * _GPU_SECONDS,
        "sustained": options.scale * _SUSTAINED_SECONDS,
    }


def _file_bytes(folder: Path, scale: float) -> int:
    """How large a file is written to be read."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise _no_disk(folder, error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _no_disk(folder, "you may not write there")
    free = found.f_bavail * found.f_frsize
    size = min(max(int(scale * _DISK_BYTES), _LEAST_MEMORY), free // _DISK_SHARE)
    if size < _LEAST_MEMORY:
        raise TracksideError(
            "device",
            printable(f"{free >> 20} MiB are free in {folder.absolute()}; needed: ")
            + f"{_LEAST_MEMORY * _DISK_SHARE >> 20}",
            "free some space, or name another folder with --folder",
        )
    return size


def _clocks(telemetry: Telemetry, began: int, ended: int) -> dict[str, float]:
    """Medians of what the GPU's sensors said meanwhile."""
    series = telemetry.window(began, ended)["series"]
    power = "gpu.power_now_w" if "gpu.power_now_w" in series else "gpu.power_w"
    names = {"sm_mhz": "gpu.sm_mhz", "power_w": power, "temperature": "gpu.temperature_c"}
    return {name: series[column]["median"] for name, column in names.items() if column in series}


def _answers(
    program: str, arguments: dict[str, Any], place: str, progress: Progress
) -> Iterator[dict[str, Any]]:
    """Lines of a measuring program, as they come; it is ended with this process's interest in it."""
    process = _started(program, arguments)
    lines: queue.Queue[str | None] = queue.Queue()
    errors: list[str] = []
    readers = [
        threading.Thread(target=_read_lines, args=(process, lines), daemon=True),
        threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True),
    ]
    for reader in readers:
        reader.start()
    done = False
    try:
        while (line := _next_line(lines, place)) is not None:
            answer = json.loads(line) if line.startswith("{") else {}
            if "begin" in answer:
                progress(place, answer["begin"])
            done = done or "done" in answer
            yield answer
        process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        for reader, stream in zip(readers, (process.stdout, process.stderr), strict=True):
            reader.join()
            if stream is not None:
                stream.close()
    if not done:
        last = ("".join(errors).strip().splitlines() or ["no message"])[-1]
        raise TracksideError(
            "device",
            f"measuring {place} ended with {process.returncode}: {last}",
            "see that the device is free and has memory, then run again",
        )


def _started(program: str, arguments: dict[str, Any]) -> subprocess.Popen[str]:
    asked = json.dumps(arguments | {"parent": os.getpid()})
    try:
        return subprocess.Popen(
            # -P: a torch.py of the working directory is not torch.
            [sys.executable, "-P", "-m", f"trackside.machine.ceiling_suite.{program}", asked],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
    except OSError as error:
        raise cannot_start(error) from error


def _environment() -> dict[str, str]:
    # The package may run from a source tree that only this process has on its path.
    source = str(Path(trackside.__file__).parent.parent)
    path = os.pathsep.join(part for part in (source, os.environ.get("PYTHONPATH", "")) if part)
    return os.environ | {"PYTHONPATH": path}


def _read_lines(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    for line in process.stdout or ():
        lines.put(line)
    lines.put(None)


def _next_line(lines: queue.Queue[str | None], place: str) -> str | None:
    try:
        return lines.get(timeout=_SILENCE_SECONDS)
    except queue.Empty:
        raise TracksideError(
            "timeout",
            f"measuring {place} said nothing for {_SILENCE_SECONDS:.0f} s",
            "see whether another program hangs on the device, then run again",
        ) from None
