"""Where telemetry's numbers come from: a sampler for the CPUs, one for a GPU; a sample is a row of floats."""

import math
import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trackside.machine.nvml import (
    CLOCK_MEMORY,
    CLOCK_SM,
    POLICY_POWER,
    POLICY_THERMAL,
    TEMPERATURE_GPU,
    Nvml,
)
from trackside.machine.system_files import Unknown, cpu_quota, find_cgroup

__all__ = ["Column", "CpuSampler", "ForeignProcess", "GpuSampler"]

Kind = Literal["gauge", "time", "count", "flags"]

# Asking for the processes costs far more than the other queries together, and nobody starts one for less.
_PROCESSES_EVERY_NS = 1_000_000_000


class _Pace(NamedTuple):
    """How often a query is asked: it takes this share of a core, and waits no longer than that."""

    share: float
    longest_ns: float


# On bare metal a query takes microseconds, and all are asked each time. On a virtual machine with an H200 the
# driver spends about 0.7 ms on most of them, and 4 ms on the energy.
_SELDOM, _OFTEN = _Pace(0.0002, 10e9), _Pace(0.0008, 1e9)

# More CPUs' frequencies would say the same at a cost: on some machines each read interrupts that CPU.
_MAX_FREQUENCY_FILES = 8

# A pid's chain of parents is never this long unless /proc changes under the walk.
_MAX_ANCESTORS = 64


@dataclass(frozen=True, slots=True)
class Column:
    """What one number of a row means."""

    name: str
    unit: str
    kind: Kind
    """`gauge` is a present value; `time` accumulates seconds and `count` events, so only differences mean
    something; `flags` is a bit mask."""
    detail: bool = False
    """Kept in the raw samples only, such as one CPU of many."""


# Numbers of NVML's fields, the columns that they become, a factor and their pace. The traffic comes as
# counters: NVML's other way to ask for it watches the bus for 20 ms each time.
_FIELDS = {
    82: (Column("gpu.memory_temperature_c", "°C", "gauge"), 1.0, _SELDOM),
    83: (Column("gpu.energy", "J", "count"), 1e-3, _SELDOM),
    # NVML's function for it tells the mean of the last second on some GPUs, the H200 among them.
    186: (Column("gpu.power_now_w", "W", "gauge"), 1e-3, _OFTEN),
    197: (Column("gpu.pcie_sent", "bytes", "count"), 1.0, _SELDOM),
    198: (Column("gpu.pcie_received", "bytes", "count"), 1.0, _SELDOM),
}


@dataclass(frozen=True, slots=True)
class ForeignProcess:
    """A process on the GPU that is not part of this measurement."""

    pid: int
    name: str
    first_ns: int
    last_ns: int


class _OpenFile:
    """A kernel file that stays open and is read again from the start, which spares opening it each time."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        try:
            self.read()  # pressure files open without the kernel option and fail only when read
        except OSError:
            self.close()
            raise

    def read(self, size: int = 4096) -> bytes:
        return os.pread(self._descriptor, size, 0)

    def close(self) -> None:
        os.close(self._descriptor)


def _stalled(pressure: _OpenFile) -> list[float]:
    """Seconds in which some task waited, since the start of the machine."""
    some = pressure.read().split(b"\n", 1)[0]
    return [int(some.rsplit(b"total=", 1)[1]) / 1e6]


class CpuSampler:
    """Steal and busy time, pressure, load, control-group throttling and frequency of the given CPUs."""

    def __init__(self, cpus: Collection[int], root: Path = Path("/")) -> None:
        self.columns: list[Column] = []
        self.unknown: list[Unknown] = []
        self._cpus = tuple(sorted(cpus))
        self._root = root
        self._files: list[_OpenFile] = []
        self._readers: list[Callable[[], list[float]]] = []
        self._tick = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else math.nan
        self._add_stat()
        self._add_pressure()
        self._add_load()
        self._add_throttling()
        self._add_frequency()

    def sample(self, now_ns: int) -> list[float]:
        row: list[float] = []
        for read in self._readers:
            row += read()
        return row

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _open(self, path: str | Path) -> _OpenFile | Unknown:
        try:
            file = _OpenFile(self._root / path)
        except OSError as error:
            return Unknown(str(path), error.strerror or type(error).__name__)
        self._files.append(file)
        return file

    def _add(self, columns: list[Column], read: Callable[[], list[float]]) -> None:
        """Take in a source; one that breaks later yields NaN, so the columns stay aligned."""
        missing = [math.nan] * len(columns)

        def guarded() -> list[float]:
            try:
                values = read()
            except (OSError, ValueError, IndexError, KeyError):
                return missing
            return values if len(values) == len(columns) else missing

        self.columns += columns
        self._readers.append(guarded)

    def _add_stat(self) -> None:
        stat = self._open("proc/stat")
        if isinstance(stat, Unknown):
            self.unknown.append(Unknown("cpu steal and busy time", stat.why))
            return
        lines = {f"cpu{cpu}".encode(): position for position, cpu in enumerate(self._cpus)}
        # The lines of CPUs come first, each well under 200 bytes; the long rest is of no interest.
        size = 200 * (2 + max(self._cpus, default=0) + 1)

        def read() -> list[float]:
            steal, busy = [math.nan] * len(lines), 0.0
            for line in stat.read(size).split(b"\n"):
                if not line.startswith(b"cpu"):
                    break
                fields = line.split()
                position = lines.get(fields[0])
                if position is not None:
                    # user nice system idle iowait irq softirq steal; guest times are part of user
                    ticks = [int(field) for field in fields[1:9]]
                    steal[position] = ticks[7] * self._tick
                    busy += (sum(ticks) - ticks[3] - ticks[4] - ticks[7]) * self._tick
            return [sum(steal) / len(lines), busy / len(lines), *steal]

        self._add(
            [
                Column("cpu.steal", "s", "time"),
                Column("cpu.busy", "s", "time"),
                *(Column(f"cpu.steal.{cpu}", "s", "time", detail=True) for cpu in self._cpus),
            ],
            read,
        )

    def _add_pressure(self) -> None:
        for what in ("cpu", "memory", "io"):
            pressure = self._open(f"proc/pressure/{what}")
            if isinstance(pressure, Unknown):
                self.unknown.append(Unknown(f"{what} pressure", f"/proc/pressure/{what}: {pressure.why}"))
            else:
                self._add([Column(f"{what}.pressure", "s", "time")], partial(_stalled, pressure))

    def _add_load(self) -> None:
        load = self._open("proc/loadavg")
        if isinstance(load, Unknown):
            self.unknown.append(Unknown("cpu load", load.why))
            return

        def read() -> list[float]:
            fields = load.read().split()
            return [float(fields[0]), float(fields[3].split(b"/")[0])]

        self._add([Column("cpu.load", "tasks", "gauge"), Column("cpu.running", "tasks", "gauge")], read)

    def _add_throttling(self) -> None:
        group = find_cgroup("cpu", self._root)
        if isinstance(group, Unknown):
            self.unknown.append(Unknown("cpu throttling", group.why))
            return
        # Without a quota nothing can be throttled. Each level with one counts its own throttling.
        limited = [folder for folder in group.folders if cpu_quota(folder) is not None]
        opened = [self._open((folder / "cpu.stat").relative_to(self._root)) for folder in limited]
        files = [file for file in opened if not isinstance(file, Unknown)]
        self.unknown += [
            Unknown("cpu throttling", f"{f.what}: {f.why}") for f in opened if isinstance(f, Unknown)
        ]
        if not files:
            return

        def read() -> list[float]:
            periods, seconds = 0, 0.0
            for file in files:
                fields = dict(line.split() for line in file.read().splitlines())
                periods += int(fields[b"nr_throttled"])
                # Version 2 counts microseconds, version 1 nanoseconds under another name.
                seconds += int(fields.get(b"throttled_usec", 0)) / 1e6
                seconds += int(fields.get(b"throttled_time", 0)) / 1e9
            return [float(periods), seconds]

        self._add(
            [Column("cpu.throttled_periods", "periods", "count"), Column("cpu.throttled", "s", "time")], read
        )

    def _add_frequency(self) -> None:
        folder = "sys/devices/system/cpu"
        opened = [
            self._open(f"{folder}/cpu{cpu}/cpufreq/scaling_cur_freq")
            for cpu in self._cpus[:_MAX_FREQUENCY_FILES]
        ]
        files = [file for file in opened if not isinstance(file, Unknown)]
        if not files:
            why = next((f.why for f in opened if isinstance(f, Unknown)), "no CPUs given")
            self.unknown.append(Unknown("cpu frequency", f"scaling_cur_freq: {why}"))
            return

        def read() -> list[float]:
            return [sum(int(file.read()) for file in files) / len(files) / 1000]

        self._add([Column("cpu.mhz", "MHz", "gauge")], read)


@dataclass
class _Query:
    """A number that NVML is asked for, no more often than its pace allows."""

    ask: Callable[[], float]
    pace: _Pace
    value: float
    cost_ns: float
    due_ns: float | None = None

    def read(self, now_ns: int, times: float) -> float:
        """The value at its pace, so many times as often; at first the one that it came with."""
        if self.due_ns is not None and now_ns < self.due_ns:
            return self.value
        if self.due_ns is not None:
            began = time.thread_time_ns()
            self.value = self.ask()
            # One answer that took long says little about the next.
            self.cost_ns = 0.75 * self.cost_ns + 0.25 * (time.thread_time_ns() - began)
        self.due_ns = now_ns + min(self.cost_ns / self.pace.share, self.pace.longest_ns) / times
        return self.value


class GpuSampler:
    """Clocks, power, temperature, throttling, use and foreign processes of one GPU, through NVML.

    Args:
        times: how many times as often as usual a query that takes the driver long is asked.
    """

    def __init__(
        self,
        nvml: Nvml,
        device: object,
        own_pids: Collection[int],
        proc: Path = Path("/proc"),
        times: float = 1.0,
    ) -> None:
        self._times = times
        self.columns: list[Column] = []
        self.unknown: list[Unknown] = []
        self.foreign: dict[int, ForeignProcess] = {}
        self._nvml = nvml
        self._device = device
        self._own_pids = own_pids
        self._proc = proc
        self._verdicts: dict[int, bool] = {}
        self._processes_at: int | None = None
        self._processes_now = math.nan
        self._queries: list[_Query] = []

        def ask(function: str, *arguments: int) -> Callable[[], Any]:
            return partial(nvml.ask, function, device, *arguments)

        sm_clock = ask("nvmlDeviceGetClockInfo", CLOCK_SM)
        self._add(Column("gpu.sm_mhz", "MHz", "gauge"), sm_clock, pace=_OFTEN)
        self._add(Column("gpu.memory_mhz", "MHz", "gauge"), ask("nvmlDeviceGetClockInfo", CLOCK_MEMORY))
        self._add(Column("gpu.power_w", "W", "gauge"), ask("nvmlDeviceGetPowerUsage"), scale=1e-3)
        temperature = ask("nvmlDeviceGetTemperature", TEMPERATURE_GPU)
        self._add(Column("gpu.temperature_c", "°C", "gauge"), temperature)
        for number, (column, scale, pace) in _FIELDS.items():
            self._add(column, partial(nvml.field, device, number), scale=scale, pace=pace)
        self._add(Column("gpu.reasons", "", "flags"), partial(nvml.clock_reasons, device), pace=_OFTEN)
        for name, policy in (("power", POLICY_POWER), ("thermal", POLICY_THERMAL)):
            violation = ask("nvmlDeviceGetViolationStatus", policy)
            column = Column(f"gpu.violation.{name}", "s", "time")
            self._add(column, violation, field="violationTime", scale=1e-9)
        utilisation = ask("nvmlDeviceGetUtilizationRates")
        self._add(Column("gpu.utilisation", "%", "gauge"), utilisation, field="gpu")
        self._add(Column("gpu.memory_used", "bytes", "gauge"), ask("nvmlDeviceGetMemoryInfo"), field="used")
        running = nvml.processes(device)
        if isinstance(running, Unknown):
            self.unknown.append(Unknown("gpu processes", running.why))
        else:
            self.columns.append(Column("gpu.foreign_processes", "processes", "gauge"))

    def sample(self, now_ns: int) -> list[float]:
        row = [query.read(now_ns, self._times) for query in self._queries]
        if len(row) < len(self.columns):
            if self._processes_at is None or now_ns - self._processes_at >= _PROCESSES_EVERY_NS:
                self._count_foreign(now_ns)
            row.append(self._processes_now)
        return row

    def close(self) -> None:
        self._nvml.close()

    def _add(
        self,
        column: Column,
        ask: Callable[[], Any],
        field: str | None = None,
        scale: float = 1,
        pace: _Pace = _SELDOM,
    ) -> None:
        """Take in a query that this GPU answers; one that it refuses now is unknown for the whole run."""
        began = time.thread_time_ns()
        first = ask()
        cost = time.thread_time_ns() - began
        if isinstance(first, Unknown):
            self.unknown.append(Unknown(column.name, first.why))
            return

        def number(value: Any) -> float:
            if isinstance(value, Unknown):
                return math.nan
            return float(value if field is None else getattr(value, field)) * scale

        self.columns.append(column)
        self._queries.append(_Query(lambda: number(ask()), pace, number(first), cost))

    def _count_foreign(self, now_ns: int) -> None:
        first_look = self._processes_at is None
        self._processes_at = now_ns
        running = self._nvml.processes(self._device)
        if isinstance(running, Unknown):
            self._processes_now = math.nan
            return
        count = 0
        for process in running:
            pid = process["pid"]
            if pid not in self._verdicts:
                self._verdicts[pid] = self._is_foreign(pid, first_look)
            if self._verdicts[pid]:
                count += 1
                seen = self.foreign.get(pid)
                since = seen.first_ns if seen else now_ns
                self.foreign[pid] = ForeignProcess(pid, process["name"] or "?", since, now_ns)
        self._processes_now = float(count)

    def _is_foreign(self, pid: int, first_look: bool) -> bool:
        ancestors = _ancestors(pid, self._proc)
        if ancestors:
            return not any(ancestor in self._own_pids for ancestor in ancestors)
        # The driver's pid means nothing here: a container sees the host's. Whoever was there before the
        # workers started is foreign; a later one may be one of ours, so it is named as unknown, not accused.
        if not first_look:
            what = f"owner of GPU process {pid}"
            self.unknown.append(Unknown(what, "its pid is not visible in this pid namespace"))
        return first_look


def _ancestors(pid: int, proc: Path) -> list[int]:
    """The process and its parents up to the first; empty where the process is not visible."""
    chain: list[int] = []
    while pid > 0 and len(chain) < _MAX_ANCESTORS:
        try:
            stat = (proc / str(pid) / "stat").read_bytes()
        except OSError:
            break
        chain.append(pid)
        # The name in parentheses may itself hold spaces and parentheses: fields start after the last one.
        pid = int(stat.rpartition(b")")[2].split()[1])
    return chain
