"""How fast this machine's memory can be at all: measured bounds, to check that a claimed time is possible.

Each is the best of all repetitions, since a bound that is too low would call an honest result impossible.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trackside.machine.facts import MachineFacts, facts, fingerprint, gpu_numbered
from trackside.records.devices import gpu_index
from trackside.records.errors import ErrorKind, TracksideError
from trackside.store.files import read_json, write_json

__all__ = ["KEPT", "FloorCeilings", "cannot_start", "floor_ceilings", "kept_ceilings"]

# Raise when a method changes, so that older cached figures are measured again.
_METHOD_VERSION = 1

_CPU_SECONDS = 0.9
"""Time to measure in; start-up and the last round come on top."""
_GPU_SECONDS = 0.8
_TIMEOUT_SECONDS = 60
"""A first CUDA context takes seconds on a machine of many GPUs; beyond this something hangs."""
_REAP_SECONDS = 5

# At least four times the last-level cache, or most of it would be served from there; capped, since touching
# more for the first time takes longer than measuring it.
_DRAM_OVER_L3, _MAX_DRAM_BYTES = 4, 512 << 20
# Past this size libc's copy and fill write around the caches, as a bound on memory speed must. Its own
# default is most of the L3, which a share among many threads never reaches.
_TUNABLES = "glibc.cpu.x86_non_temporal_threshold=1048576:glibc.cpu.x86_memset_non_temporal_threshold=1048576"

# Neighbours on a shared machine can halve a whole measurement. So one that was not steady is measured again
# the next time, and the better of each figure stays; after five such passes it is left at that.
_STEADY_SPREAD, _MAX_PASSES = 0.05, 5
KEPT = "ceilings-"
"""How names of files begin that hold what `trackside ceilings` measured; a fingerprint follows."""
# Which of its figures bound what: a copy's reads and writes share the bus, so their sum bounds either.
_MEASURED = {
    "dram_read": ("memory.read", "memory.copy"),
    "dram_write": ("memory.write", "memory.copy"),
    "cache_read": ("l2.copy",),
    "cache_write": ("l2.copy",),
}
_BOUNDS = ("dram_read", "dram_write", "cache_read", "cache_write")

# Where the sizes are unknown: those of a common server core and socket.
_DEFAULT_L2, _DEFAULT_L3 = 1 << 20, 32 << 20


@dataclass(frozen=True, slots=True)
class FloorCeilings:
    """Upper bounds in bytes a second; `cache_*` hold for working sets of at most `cache_bytes`."""

    device: str
    dram_read: float
    dram_write: float
    cache_read: float
    cache_write: float
    cache_bytes: int
    n: int
    """Repetitions behind each figure, the fewest of the four."""
    spread: float
    """Relative interquartile range of the repetitions, the largest of the four."""
    method: str
    measured_at: str
    """UTC, ISO 8601."""
    passes: int = 1
    """Measurements that these figures are the best of."""


def floor_ceilings(
    device: str,
    cache: Path | None = None,
    measure: bool = True,
    *,
    cpus: Collection[int] | None = None,
    machine: MachineFacts | None = None,
) -> FloorCeilings:
    """The bounds of a device, measured in a child process in under 2 s, or read from the cache.

    The caller holds the device's lock: another program on the device makes the figures too low.

    Args:
        device: `cpu` or `cuda:N`.
        cache: folder of cached results, one file for each machine and device; None neither reads nor writes.
        measure: False takes the cached figures only.
        cpus: measure with these CPUs; by default all that this process may use.
        machine: facts already read, to save reading them again.

    Raises:
        TracksideError: `usage` for another device name, `not-found` where nothing is cached and `measure` is
            False or the device does not exist, `unsupported`, `device` or `timeout` where measuring failed.
    """
    index = gpu_index(device)
    machine = machine or facts()
    allowed = sorted(cpus) if cpus is not None else list(machine.cpu.allowed)
    path = cache / f"floor-{_key(machine, device, allowed)}.json" if cache else None
    cached = _load(path) if path else None
    # On a CPU all that this process may use were measured: more than a comparison's own may have at once.
    suite = cache if index is not None or allowed == list(machine.cpu.allowed) else None
    if cached and (not measure or cached.spread <= _STEADY_SPREAD or cached.passes >= _MAX_PASSES):
        return _raised(cached, suite, machine)
    if not measure:
        raise TracksideError(
            "not-found",
            f"no measured ceilings for {device} of this machine in {cache}",
            "let them be measured once: floor_ceilings(device, cache, measure=True)",
        )
    result = _measure_cpu(machine, allowed) if index is None else _measure_cuda(device, index)
    if cached:
        result = _better(cached, result)
    if path:
        _store(path, result)
    return _raised(result, suite, machine)


def kept_ceilings(device: str, folder: Path, machine: MachineFacts) -> dict[str, dict[str, Any]]:
    """What `trackside ceilings` measured on a device of this machine and kept: rows of its records by name.

    Where several measurements are kept the row with the best figure stands.
    """
    # Here, since it takes as long to import as all the rest.
    from trackside.records.ceilings import CeilingsRecord

    index = gpu_index(device)
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob(f"{KEPT}{fingerprint(machine)}-*.json")):
        try:
            record = CeilingsRecord.from_dict(read_json(path))
        except (OSError, TracksideError):
            continue  # kept figures only help: those that cannot be read do not
        if index is not None and record.gpus.get(device) != gpu_numbered(machine, index):
            continue
        for row in record.ceilings:
            better = row.name not in found or row.best > found[row.name]["best"]
            if row.place == device and better:
                found[row.name] = row.model_dump() | {"measured_at": record.measured_at}
    return found


def _raised(bounds: FloorCeilings, folder: Path | None, machine: MachineFacts) -> FloorCeilings:
    """With what `trackside ceilings` measured on this machine, where that was more."""
    if folder is None:
        return bounds
    kind = "cpu" if bounds.device == "cpu" else "gpu"
    rows = kept_ceilings(bounds.device, folder, machine)
    best = {
        bound: max(rows[f"{kind}.{name}"]["best"] if f"{kind}.{name}" in rows else 0.0 for name in names)
        for bound, names in _MEASURED.items()
    }
    more: dict[str, Any] = {bound: value for bound, value in best.items() if value > getattr(bounds, bound)}
    if not more:
        return bounds
    return replace(bounds, **more, method=f"{bounds.method}; raised to what `trackside ceilings` measured")


def _better(old: FloorCeilings, new: FloorCeilings) -> FloorCeilings:
    best = {name: max(getattr(old, name), getattr(new, name)) for name in _BOUNDS}
    return replace(new, **best, n=old.n + new.n, passes=old.passes + new.passes)


def _key(machine: MachineFacts, device: str, cpus: Sequence[int]) -> str:
    parts = [fingerprint(machine), device.replace(":", ""), f"v{_METHOD_VERSION}"]
    if device == "cpu":
        # Which, and not only how many: cores of one machine can differ, and so can their ways to memory.
        parts += [f"{len(cpus)}cpus", _short_digest(",".join(map(str, sorted(cpus))))]
    else:
        # These decide which GPU `cuda:0` is.
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
            if name in os.environ:
                parts.append(_short_digest(f"{name}={os.environ[name]}"))
    return "-".join(parts)


def _short_digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def _load(path: Path) -> FloorCeilings | None:
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(FloorCeilings).validate_json(path.read_bytes(), strict=True)
    except (OSError, ValueError):
        return None  # a cache only: what cannot be read is measured again


def _store(path: Path, result: FloorCeilings) -> None:
    # A cache only: on a full disk they are measured again next time.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(result))


def _measure_cpu(machine: MachineFacts, cpus: list[int]) -> FloorCeilings:
    if not hasattr(os, "sched_getaffinity"):
        raise TracksideError(
            "unsupported",
            f"CPU ceilings are measured on Linux only, found {sys.platform}",
            "use a Linux machine",
        )
    l2 = min((c.bytes for c in machine.cpu.caches if c.level == 2), default=_DEFAULT_L2)
    l3 = max((c.bytes for c in machine.cpu.caches if c.level == 3), default=_DEFAULT_L3)
    levels = machine.cpu.cache_bytes(2) + machine.cpu.cache_bytes(3)
    memory = _dram_bytes(max(machine.cpu.cache_bytes(3), l3), machine)
    answer = _child(
        "bandwidth_cpu.py",
        {"l2": l2, "l3": l3, "memory": memory, "seconds": _CPU_SECONDS, "cpus": cpus or None},
        "cpu",
    )
    threads: int = answer["threads"]
    sizes: dict[str, int] = answer["sizes"]
    rates: dict[str, list[float]] = answer["rates"]

    def best(place: str, *operations: str) -> list[float]:
        found = [
            samples
            for key, samples in rates.items()
            if key.startswith(tuple(f"{place} {o} " for o in operations))
        ]
        return max(found, key=max)

    # A copy's reads and writes share the bus, so their sum bounds either; memset alone is no bound for
    # writes, since a plain store reads the line before it writes it.
    read = best("dram", "memchr", "memcmp", "memmove")
    write = best("dram", "memset", "memmove")
    cache_read = max((best(place, "memchr", "memcmp", "memmove") for place in ("l2", "l3")), key=max)
    cache_write = max((best(place, "memset", "memmove") for place in ("l2", "l3")), key=max)
    # Private caches scale with the threads at best, and Python cannot start calls of microseconds on many.
    return _result(
        "cpu",
        (max(read), max(write), threads * max(cache_read), threads * max(cache_write)),
        levels or l2 + l3,
        (read, write, cache_read, cache_write),
        f"best of memchr, memcmp, memset and memmove: memory {memory >> 20} MiB on 1 and {threads} threads, "
        f"caches {sizes['l2'] >> 10} and {sizes['l3'] >> 10} KiB on 1 thread times {threads}",
    )


def _dram_bytes(l3: int, machine: MachineFacts) -> int:
    wanted = min(max(_DRAM_OVER_L3 * l3, 64 << 20), _MAX_DRAM_BYTES)
    limits = [limit for limit in (machine.memory.total_bytes, machine.limits.memory_bytes) if limit]
    # An eighth of what there is: the measurement must not push a small machine into swapping.
    return min([wanted, *(limit // 8 for limit in limits)]) & ~0xFFFF


def _measure_cuda(device: str, index: int) -> FloorCeilings:
    answer = _child("bandwidth_cuda.py", {"index": index, "seconds": _GPU_SECONDS}, device)
    points = {(p["place"], p["operation"], p["bytes"]): p["seconds"] for p in answer["times"]}

    def rates(place: str, operation: str, factor: int) -> list[float]:
        size = max(size for p, o, size in points if (p, o) == (place, operation))
        return [factor * size / seconds for seconds in points[place, operation, size]]

    def without_launches(operation: str, factor: int) -> float:
        """The slope between two sizes that fit the L2: what is left without the gap between launches."""
        small, large = sorted(size for p, o, size in points if (p, o) == ("l2", operation))
        seconds = min(points["l2", operation, large]) - min(points["l2", operation, small])
        return factor * (large - small) / seconds if seconds > 0 else 0.0

    fill, copy = rates("dram", "fill", 1), rates("dram", "copy", 2)
    write = max(fill, copy, key=max)
    l2_fill, l2_copy = rates("l2", "fill", 1), rates("l2", "copy", 2)
    size = max(size for _, _, size in points)
    return _result(
        device,
        (
            max(copy),
            max(write),
            max(*l2_copy, without_launches("copy", 2)),
            max(*l2_fill, without_launches("fill", 1)),
        ),
        answer["l2_bytes"],
        (copy, write, l2_copy, l2_fill),
        f"{answer['name']} ({answer['uuid']}): best of cuMemcpyDtoDAsync (reads and writes together) and "
        f"cuMemsetD32Async: memory {size >> 20} MiB, L2 by the slope from an eighth to a quarter of it",
    )


def _result(
    device: str,
    values: tuple[float, float, float, float],
    cache_bytes: int,
    samples: Iterable[list[float]],
    method: str,
) -> FloorCeilings:
    # It imports numpy: who only looks at what is kept, as an assistant's server, should not wait for that.
    from trackside.stats.spread import iqr_rel

    samples = list(samples)
    dram_read, dram_write, cache_read, cache_write = values
    return FloorCeilings(
        device=device,
        dram_read=dram_read,
        dram_write=dram_write,
        # What comes through a cache comes through it at memory's speed at least.
        cache_read=max(cache_read, dram_read),
        cache_write=max(cache_write, dram_write),
        cache_bytes=cache_bytes,
        n=min(len(rates) for rates in samples),
        spread=round(max(iqr_rel(rates) for rates in samples), 4),
        method=method,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _child(program: str, arguments: dict[str, Any], device: str) -> dict[str, Any]:
    """Run a measuring program beside this file; its last line of output is its answer."""
    # -I: nothing in the working directory or the environment may replace the standard library.
    command = [sys.executable, "-I", str(Path(__file__).with_name(program)), json.dumps(arguments)]
    environment = os.environ | {"GLIBC_TUNABLES": _TUNABLES}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    except OSError as error:
        raise cannot_start(error) from error
    try:
        output, errors = process.communicate(timeout=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            # A process stuck in the driver outlives even the kill until the driver lets go: no use waiting.
            process.communicate(timeout=_REAP_SECONDS)
        raise TracksideError(
            "timeout",
            f"measuring the ceilings of {device} took more than {_TIMEOUT_SECONDS} s",
            "see whether another program hangs on the device, then try again",
        ) from None
    lines = output.splitlines()
    if process.returncode != 0 or not lines:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        raise TracksideError(
            "device",
            f"measuring the ceilings of {device} ended with {process.returncode}: {last}",
            _remedy(device),
        )
    answer: dict[str, Any] = json.loads(lines[-1])
    if "error" in answer:
        kind: ErrorKind = answer["error"]["kind"]
        raise TracksideError(kind, f"cannot measure {device}: {answer['error']['message']}", _remedy(device))
    return answer


def cannot_start(error: OSError) -> TracksideError:
    """For a measuring program that the system did not start."""
    return TracksideError(
        "unsupported",
        f"found {sys.executable or 'no path of this Python'}: {error.strerror}; needed: a Python that can be "
        "started, since measurements have processes of their own",
        "make it executable, or use another: /path/to/python -m trackside",
    )


def _remedy(device: str) -> str:
    if device == "cpu":
        return "free some memory and try again"
    return (
        "see that `nvidia-smi` lists the GPU, that CUDA_VISIBLE_DEVICES does not hide it and that it is idle"
    )
