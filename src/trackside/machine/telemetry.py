"""What the machine did while we measured: a thread that samples it, and the questions to ask of the samples.

All times are `time.monotonic_ns`. At 20 Hz the thread used 0.5 % of one core on two virtual CPUs, and just
under 1 % with an H200 whose driver answers slowly.
"""

import math
import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from trackside.machine.nvml import SLOWDOWN_REASONS, Nvml, reason_names
from trackside.machine.samplers import Column, CpuSampler, ForeignProcess, GpuSampler
from trackside.machine.system_files import Unknown

__all__ = ["KINDS", "Kind", "Mark", "Recorder", "Telemetry"]

# Steal above this share of a window: the hypervisor ran someone else on our CPU. The kernel counts ticks of
# 10 ms, so in windows under 0.5 s one tick is enough.
_STEAL_LIMIT = 0.02
# Share of the time in which some runnable task waited for a CPU.
_PRESSURE_LIMIT = 0.20
# Sampling slows down rather than cost more than this share of one core, for example with hundreds of CPUs.
_COST_LIMIT = 0.01
_CLOSELY = 5
"""Times that, for who looks closely."""
# A driver that hangs is waited for so long; a call into it cannot be ended.
_PATIENCE_SECONDS = 5.0
# Enough for a sparkline across a terminal; the raw samples are in the .npz file.
_MAX_POINTS = 60
_HANGS = "the GPU's driver has not answered for seconds: it hangs"


Kind = Literal["steal", "quota", "pressure", "slowdown", "others"]
KINDS: Final[tuple[Kind, ...]] = ("steal", "quota", "pressure", "slowdown", "others")


@dataclass(frozen=True, slots=True)
class Mark:
    label: str
    at_ns: int


@dataclass(frozen=True)
class Telemetry:
    """Samples of one run: a row of `values` for each of `times_ns`, a column for each of `columns`."""

    times_ns: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    columns: tuple[Column, ...]
    marks: tuple[Mark, ...] = ()
    foreign: tuple[ForeignProcess, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    cost: float = math.nan
    """Share of one core that the recorder itself used."""

    def window(self, t0_ns: int, t1_ns: int) -> dict[str, Any]:
        """Summary of the samples that enclose a window: up to a period more than the window on each side.

        Times and counts become rates first: `cpu.steal` is then a share of the time, 0 to 1.
        """
        first, last = self._enclosing(t0_ns, t1_ns)
        rows = slice(first, last + 1)
        series = {
            column.name: _summary(values, unit) for column, unit, values in self._series(rows) if values.size
        }
        return {
            "seconds": self._seconds(first, last),
            "samples": last + 1 - first,
            "series": series,
            "reasons": self._reasons(rows),
        }

    def stolen(self, t0_ns: int, t1_ns: int, cpus: Collection[int]) -> float:
        """The largest share of the time between two times in which a hypervisor kept one of these CPUs."""
        first, last = self._enclosing(t0_ns, t1_ns)
        seconds = self._seconds(first, last)
        taken = (self._growth(f"cpu.steal.{cpu}", first, last) for cpu in cpus)
        return max(taken, default=0.0) / seconds if seconds else 0.0

    def disturbances(
        self,
        t0_ns: int,
        t1_ns: int,
        cpus: Collection[int] | None = None,
        kinds: Collection[Kind] = KINDS,
    ) -> list[str]:
        """What may have spoiled a measurement between two times; empty if nothing that was watched did.

        Args:
            t0_ns: start, in `time.monotonic_ns`.
            t1_ns: end.
            cpus: the CPUs whose steal matters; all recorded ones if None.
            kinds: what to look for.
        """
        if not self._covers(t0_ns, t1_ns):
            return ["telemetry: the window reaches beyond the samples, so nothing is known about part of it"]
        first, last = self._enclosing(t0_ns, t1_ns)
        seconds = self._seconds(first, last)
        looks: dict[Kind, Callable[[], list[str]]] = {
            "steal": lambda: self._steal(first, last, seconds, cpus),
            "quota": lambda: self._throttling(first, last),
            "pressure": lambda: self._pressure(first, last, seconds),
            "slowdown": lambda: self._slowdowns(first, last),
            "others": lambda: self._foreign_processes(first, last),
        }
        return [text for kind in KINDS if kind in kinds for text in looks[kind]()]

    def to_record(self) -> dict[str, Any]:
        """A few kilobytes of plain data: summaries with at most 60 points per series, not the samples."""
        if self.times_ns.size == 0:
            return {
                "seconds": 0.0,
                "samples": 0,
                "series": {},
                "reasons": {},
                "unknown": self._plain_unknown(),
            }
        start, end = int(self.times_ns[0]), int(self.times_ns[-1])
        record = self.window(start, end)
        for column, _, values in self._series(slice(None)):
            if column.name in record["series"]:
                record["series"][column.name]["points"] = _downsampled(values)
        seconds = record["seconds"]
        return {
            **record,
            "hz": _rounded((self.times_ns.size - 1) / seconds) if seconds else None,
            "cost": _rounded(self.cost),
            "marks": [
                {"label": mark.label, "at_s": _rounded((mark.at_ns - start) / 1e9)} for mark in self.marks
            ],
            "foreign_processes": [{"pid": process.pid, "name": process.name} for process in self.foreign],
            "unknown": self._plain_unknown(),
        }

    def save(self, path: Path) -> None:
        """Write the raw samples as .npz: `times_ns`, `values`, and the columns' `names`, `units`, `kinds`."""
        with path.open("wb") as file:
            np.savez_compressed(
                file,
                times_ns=self.times_ns,
                values=self.values,
                names=np.array([column.name for column in self.columns]),
                units=np.array([column.unit for column in self.columns]),
                kinds=np.array([column.kind for column in self.columns]),
            )

    def _plain_unknown(self) -> list[dict[str, str]]:
        return [asdict(entry) for entry in self.unknown]

    def _covers(self, t0_ns: int, t1_ns: int) -> bool:
        return bool(self.times_ns.size and self.times_ns[0] <= t0_ns and t1_ns <= self.times_ns[-1])

    def _enclosing(self, t0_ns: int, t1_ns: int) -> tuple[int, int]:
        if self.times_ns.size == 0:
            return 0, -1
        last_before = int(np.searchsorted(self.times_ns, t0_ns, side="right")) - 1
        first_after = int(np.searchsorted(self.times_ns, t1_ns, side="left"))
        first = max(0, last_before)
        return first, max(first, min(first_after, self.times_ns.size - 1))

    def _seconds(self, first: int, last: int) -> float:
        return float(self.times_ns[last] - self.times_ns[first]) / 1e9 if last > first else 0.0

    def _series(self, rows: slice) -> list[tuple[Column, str, npt.NDArray[np.float64]]]:
        """Columns for people: no single CPUs, no bit masks, and rates in place of running totals."""
        times, series = self.times_ns[rows] / 1e9, []
        for position, column in enumerate(self.columns):
            values, unit = self.values[rows, position], column.unit
            if column.detail or column.kind == "flags":
                continue
            if column.kind in ("time", "count"):
                values = _rates(values, times)
                unit = f"{column.unit}/s"
                if column.kind == "time":
                    # The kernel counts in ticks: between two samples one too many may fall.
                    values, unit = np.minimum(values, 1.0), "share"
            series.append((column, unit, values[np.isfinite(values)]))
        return series

    def _reasons(self, rows: slice) -> dict[str, float]:
        """Share of the samples in which each clock reason was set."""
        masks = self._column("gpu.reasons", rows)
        shares: dict[str, float] = {}
        for mask in masks[np.isfinite(masks)]:
            for name in reason_names(int(mask)):
                shares[name] = shares.get(name, 0.0) + 1 / masks.size
        return {name: _rounded(share) for name, share in shares.items()}

    def _column(self, name: str, rows: slice) -> npt.NDArray[np.float64]:
        for position, column in enumerate(self.columns):
            if column.name == name:
                return self.values[rows, position]
        return np.empty(0)

    def _growth(self, name: str, first: int, last: int) -> float:
        """How much a running total grew; 0 where it is not recorded."""
        values = self._column(name, slice(first, last + 1))
        values = values[np.isfinite(values)]
        return float(values[-1] - values[0]) if values.size else 0.0

    def _steal(self, first: int, last: int, seconds: float, cpus: Collection[int] | None) -> list[str]:
        found = []
        for column in self.columns:
            prefix, _, number = column.name.rpartition(".")
            if prefix != "cpu.steal" or (cpus is not None and int(number) not in cpus):
                continue
            stolen = self._growth(column.name, first, last)
            if stolen > _STEAL_LIMIT * seconds:
                found.append(f"steal: the hypervisor took CPU {number} for {_share(stolen, seconds)}")
        return found

    def _throttling(self, first: int, last: int) -> list[str]:
        periods = self._growth("cpu.throttled_periods", first, last)
        if periods <= 0:
            return []
        stopped = self._growth("cpu.throttled", first, last)
        return [f"cgroup: the CPU quota ran out in {periods:.0f} periods and stopped us for {stopped:.3f} s"]

    def _pressure(self, first: int, last: int, seconds: float) -> list[str]:
        waited = self._growth("cpu.pressure", first, last)
        if waited <= _PRESSURE_LIMIT * seconds:
            return []
        return [f"pressure: some task waited for a CPU during {_share(waited, seconds)}"]

    def _slowdowns(self, first: int, last: int) -> list[str]:
        masks = self._column("gpu.reasons", slice(first, last + 1))
        names: dict[str, int] = {}
        for mask in masks[np.isfinite(masks)]:
            for name in reason_names(int(mask) & SLOWDOWN_REASONS):
                names[name] = names.get(name, 0) + 1
        found = [f"gpu: {name} in {count} of {masks.size} samples" for name, count in names.items()]
        # The counter also sees what falls between two samples.
        hot = self._growth("gpu.violation.thermal", first, last)
        if hot > 0:
            found.append(f"gpu: clocks held down by temperature for {hot * 1e3:.1f} ms")
        return found

    def _foreign_processes(self, first: int, last: int) -> list[str]:
        counts = self._column("gpu.foreign_processes", slice(first, last + 1))
        if not np.any(counts > 0):
            return []
        start, end = self.times_ns[first], self.times_ns[last]
        here = [process for process in self.foreign if process.first_ns <= end and process.last_ns >= start]
        named = ", ".join(f"{process.pid} ({process.name})" for process in here or self.foreign)
        return [f"gpu: other processes compute on it: {named or 'not named'}"]


class Recorder:
    """Samples the machine from a thread of the judge until stopped.

    Args:
        hz: samples a second. It is lowered by itself where one sample costs too much.
        gpu_index: also sample this GPU, by NVML's index or by UUID; `facts.gpu_numbered` tells which one
            CUDA's number means.
        cpus: CPUs to watch; by default those that this process may use.
        clock: nanoseconds; the time base of samples and windows.
        closely: ask the GPU five times as often where that is dear, at five times the cost: for windows of
            less than a second, on a machine with cores to spare.
    """

    def __init__(
        self,
        hz: float = 20,
        gpu_index: int | str | None = None,
        cpus: Collection[int] | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        closely: bool = False,
    ) -> None:
        self._closely = closely
        self._period_ns = int(1e9 / hz)
        self._clock = clock
        self._own_pids = {os.getpid()}
        self._unknown: list[Unknown] = []
        self._gpu: GpuSampler | None = None
        self._samplers: list[CpuSampler | GpuSampler] = [CpuSampler(_watched(cpus))]
        if gpu_index is not None:
            self._gpu = self._open_gpu(gpu_index)
            if self._gpu:
                self._samplers.append(self._gpu)
        self._columns = tuple(column for sampler in self._samplers for column in sampler.columns)
        self._times: list[int] = []
        self._rows: list[list[float]] = []
        self._marks: list[Mark] = []
        self._cost_ns = 0
        self._failed = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Take the first sample and start the thread. It inherits the caller's CPU affinity."""
        if self._thread is not None:
            raise RuntimeError("this recorder was started before; make a new one")
        self._sample()
        self._thread = threading.Thread(target=self._run, name="trackside-telemetry", daemon=True)
        self._thread.start()

    def stop(self) -> Telemetry:
        """End the thread after a last sample and return everything; a second call returns the same."""
        if self._thread is None:
            raise RuntimeError("this recorder was never started")
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join(_PATIENCE_SECONDS)
            if self._thread.is_alive():
                self._give_up(_HANGS)
                return self._telemetry(0, len(self._times))
            try:
                self._sample()
            finally:
                for sampler in self._samplers:
                    sampler.close()
        return self._telemetry(0, len(self._times))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def own(self, pid: int) -> None:
        """Count this process and its descendants as ours on the GPU. The judge's own are known without it."""
        self._own_pids.add(pid)

    def mark(self, label: str) -> None:
        """Note a label at this moment; it takes no sample, so it is cheap enough for a timed path."""
        self._marks.append(Mark(label, self._clock()))

    def window(self, t0_ns: int, t1_ns: int) -> dict[str, Any]:
        """`Telemetry.window` while the recorder runs."""
        return self._around(t0_ns, t1_ns).window(t0_ns, t1_ns)

    def stolen(self, t0_ns: int, t1_ns: int, cpus: Collection[int]) -> float:
        """`Telemetry.stolen` while the recorder runs."""
        return self._around(t0_ns, t1_ns).stolen(t0_ns, t1_ns, cpus)

    def disturbances(
        self,
        t0_ns: int,
        t1_ns: int,
        cpus: Collection[int] | None = None,
        kinds: Collection[Kind] = KINDS,
    ) -> list[str]:
        """`Telemetry.disturbances` while the recorder runs; samples now if the last sample is before t1."""
        return self._around(t0_ns, t1_ns).disturbances(t0_ns, t1_ns, cpus, kinds)

    def latest(self, name: str) -> float | None:
        """The newest sample of a column; None where it is not recorded."""
        for position, column in enumerate(self._columns):
            if column.name == name and self._rows:
                value = self._rows[-1][position]
                return value if math.isfinite(value) else None
        return None

    @property
    def watches_gpu(self) -> bool:
        """Whether the GPU that was asked for is being sampled."""
        return self._gpu is not None

    def _open_gpu(self, which: int | str) -> GpuSampler | None:
        nvml = Nvml.open()
        if isinstance(nvml, Unknown):
            self._unknown.append(Unknown(f"gpu {which}", nvml.why))
            return None
        device = nvml.device(which)
        if isinstance(device, Unknown):
            self._unknown.append(Unknown(f"gpu {which}", device.why))
            nvml.close()
            return None
        return GpuSampler(nvml, device, self._own_pids, times=_CLOSELY if self._closely else 1)

    def _run(self) -> None:
        due = started = self._clock()
        while True:
            cost = self._cost_ns // (_CLOSELY if self._closely else 1)
            due = _next_due(due, self._period_ns, self._clock(), started, cost)
            if self._stopping.wait(max(0, due - self._clock()) / 1e9):
                return
            if not self._sample():
                return
            self._cost_ns = time.thread_time_ns()  # of this thread since it began, waiting included

    def _sample(self) -> bool:
        """Take a sample; False from the first that failed on, which ends the telemetry and not the run."""
        if self._failed:
            return False
        # Two threads never sample at once; one that hangs in a driver would keep the other for ever.
        if not self._lock.acquire(timeout=_PATIENCE_SECONDS):
            self._give_up(_HANGS)
            return False
        try:
            now = self._clock()
            row = [value for sampler in self._samplers for value in sampler.sample(now)]
            if self._failed:
                return False
            self._rows.append(row)
            self._times.append(now)
            return True
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")
            return False
        finally:
            self._lock.release()

    def _give_up(self, why: str) -> None:
        if not self._failed:
            self._failed = True
            self._unknown.append(Unknown("telemetry from here on", why))

    def _around(self, t0_ns: int, t1_ns: int) -> Telemetry:
        running = self._thread is not None and not self._stopping.is_set()
        if running and (not self._times or self._times[-1] < t1_ns):
            self._sample()
        first = max(0, bisect_right(self._times, t0_ns) - 1)
        last = bisect_left(self._times, t1_ns)
        return self._telemetry(first, last + 1)

    def _telemetry(self, first: int, end: int) -> Telemetry:
        # Without the lock, which a thread that hangs may hold; a time is added behind its row.
        times = self._times[first:end]
        rows = self._rows[first : first + len(times)]
        elapsed = self._times[-1] - self._times[0] if self._times else 0
        sampler_unknown = [entry for sampler in self._samplers for entry in sampler.unknown]
        return Telemetry(
            times_ns=np.array(times, dtype=np.int64),
            values=np.array(rows, dtype=np.float64).reshape(len(times), len(self._columns)),
            columns=self._columns,
            marks=tuple(self._marks),
            foreign=tuple(self._gpu.foreign.values()) if self._gpu else (),
            unknown=(*self._unknown, *sampler_unknown),
            cost=self._cost_ns / elapsed if elapsed else math.nan,
        )


def _next_due(due: int, period: int, now: int, started: int, cost: int) -> int:
    """When to sample next: on the grid of periods, later if the cost so far exceeds its share of the time."""
    on_grid = due + period
    if on_grid < now:  # starved: skip the missed samples rather than catch up in a burst
        on_grid = now + period - (now - due) % period
    return max(on_grid, started + int(cost / _COST_LIMIT))


def _watched(cpus: Collection[int] | None) -> Collection[int]:
    if cpus is not None:
        return cpus
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def _share(part: float, seconds: float) -> str:
    return f"{100 * part / seconds:.0f} % of {seconds:.2f} s" if seconds else f"{part * 1e3:.0f} ms"


def _rates(totals: npt.NDArray[np.float64], times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    steps = np.diff(times)
    rates = np.full(steps.shape, np.nan)
    grown = np.diff(totals)
    # A counter of 32 bits begins anew, that of an H200's bus every few seconds: what it grew by is not known.
    np.divide(grown, steps, out=rates, where=(steps > 0) & (grown >= 0))
    return rates


def _summary(values: npt.NDArray[np.float64], unit: str) -> dict[str, Any]:
    return {
        "unit": unit,
        "n": int(values.size),
        "min": _rounded(values.min()),
        "median": _rounded(np.median(values)),
        "mean": _rounded(values.mean()),
        "max": _rounded(values.max()),
    }


def _downsampled(values: npt.NDArray[np.float64]) -> list[float]:
    """Means of at most 60 stretches of equal length."""
    parts: Sequence[npt.NDArray[np.float64]] = np.array_split(values, min(_MAX_POINTS, values.size))
    return [_rounded(part.mean()) for part in parts]


def _rounded(value: float | np.floating[Any]) -> float:
    # Five digits are beyond every source's accuracy, and keep the record small.
    return float(f"{float(value):.5g}")
