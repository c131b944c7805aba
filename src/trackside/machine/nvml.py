"""The one door to NVML: every question answers with a value or with an `Unknown`, never with an exception."""

import ctypes
import importlib
from types import TracebackType
from typing import Any, Self, TypedDict

from trackside.machine.system_files import Unknown
from trackside.records.errors import TracksideError

__all__ = [
    "CLOCK_MEMORY",
    "CLOCK_SM",
    "POLICY_POWER",
    "POLICY_THERMAL",
    "REASONS",
    "SLOWDOWN_REASONS",
    "TEMPERATURE_GPU",
    "GpuProcess",
    "Nvml",
    "gpu_processes",
    "reason_names",
]

# NVML's own enumerations, which its ABI keeps fixed; a test compares them with pynvml's.
CLOCK_SM = 1
CLOCK_MEMORY = 2
TEMPERATURE_GPU = 0
POLICY_POWER = 0
POLICY_THERMAL = 1
# Members of the union that a field's value is, by the type that NVML says it has.
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

REASONS = {
    0x1: "GpuIdle",
    0x2: "ApplicationsClocks",
    0x4: "SwPowerCap",
    0x8: "HwSlowdown",
    0x10: "SyncBoost",
    0x20: "SwThermal",
    0x40: "HwThermal",
    0x80: "HwPowerBrake",
    0x100: "DisplayClock",
    0x200: "BoardLimit",
    0x400: "Reliability",
}
"""Why the clocks are below their maximum: NVML's bit and the name that Trackside prints."""

SLOWDOWN_REASONS = 0x8 | 0x20 | 0x40 | 0x80
"""Reasons that spoil a measurement. SwPowerCap is none: any sustained GEMM reaches the power cap."""


class GpuProcess(TypedDict):
    pid: int
    used_memory: int | None
    """Bytes; None where the driver does not say (some virtual machines, MIG)."""
    name: str | None


class Nvml:
    """An initialised NVML. `ask` is the only way through it."""

    def __init__(self, library: Any) -> None:
        self._library = library

    @classmethod
    def open(cls) -> "Nvml | Unknown":
        """Load and initialise NVML; an Unknown where there is no driver, no library or no permission."""
        try:
            library: Any = importlib.import_module("pynvml")
        except ImportError:
            return Unknown("gpus", "the package nvidia-ml-py is not installed")
        nvml = cls(library)
        started = nvml.ask("nvmlInit")
        if isinstance(started, Unknown):
            return Unknown("gpus", f"NVML: {started.why}")
        return nvml

    def close(self) -> None:
        self.ask("nvmlShutdown")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, function: str, *arguments: object) -> Any:
        """Call an NVML function by name: its result, or an Unknown with NVML's own words for the failure."""
        try:
            value = getattr(self._library, function)(*arguments)
        except AttributeError:
            return Unknown(function, "the installed nvidia-ml-py does not know it")
        except Exception as error:
            # Besides NVMLError, the bindings let ctypes and decoding errors through; none may end a run.
            return Unknown(function, str(error) or type(error).__name__)
        # Bindings before 11.5 answer in bytes.
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def device(self, which: int | str) -> Any:
        """The handle of a GPU by NVML index or by UUID; an Unknown where there is none."""
        if isinstance(which, str):
            return self.ask("nvmlDeviceGetHandleByUUID", which)
        return self.ask("nvmlDeviceGetHandleByIndex", which)

    def clock_reasons(self, device: object) -> Any:
        reasons = self.ask("nvmlDeviceGetCurrentClocksEventReasons", device)
        if isinstance(reasons, Unknown):  # drivers before 535 have the old name only
            reasons = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", device)
        return reasons

    def field(self, device: object, number: int) -> Any:
        """The value of one of NVML's numbered fields, or an Unknown."""
        answer = self.ask("nvmlDeviceGetFieldValues", device, [number])
        if isinstance(answer, Unknown):
            return answer
        (found,) = answer
        if found.nvmlReturn != 0:
            words = self.ask("nvmlErrorString", found.nvmlReturn)
            return Unknown(f"field {number}", words if isinstance(words, str) else str(found.nvmlReturn))
        return getattr(found.value, _VALUES[found.valueType])

    def fabric_state(self, device: object) -> Any:
        """How far the GPU has come in joining its NVLink fabric, as NVML's number, or an Unknown."""
        try:
            info = self._library.c_nvmlGpuFabricInfo_t()
        except AttributeError:
            return Unknown("fabric", "the installed nvidia-ml-py does not know it")
        answer = self.ask("nvmlDeviceGetGpuFabricInfo", device, ctypes.byref(info))
        return answer if isinstance(answer, Unknown) else int(info.state)

    def processes(self, device: object) -> list[GpuProcess] | Unknown:
        """Processes with a compute context on the GPU. Pids are the driver's: in a container, the host's."""
        running = self.ask("nvmlDeviceGetComputeRunningProcesses", device)
        if isinstance(running, Unknown):
            return running
        found: list[GpuProcess] = []
        for process in running:
            name = self.ask("nvmlSystemGetProcessName", process.pid)
            memory = process.usedGpuMemory
            found.append(
                {
                    "pid": int(process.pid),
                    "used_memory": None if memory is None else int(memory),
                    "name": None if isinstance(name, Unknown) else str(name),
                }
            )
        return found


def gpu_processes(index: int | str) -> list[GpuProcess]:
    """Who computes on a GPU now, by NVML index or UUID.

    Raises:
        TracksideError: kind `device`, where NVML cannot say. An empty list always means "nobody".
    """
    nvml = Nvml.open()
    found: list[GpuProcess] | Unknown
    if isinstance(nvml, Unknown):
        found = nvml
    else:
        with nvml:
            device = nvml.device(index)
            found = device if isinstance(device, Unknown) else nvml.processes(device)
    if isinstance(found, Unknown):
        remedy = (
            "check that `nvidia-smi` lists the GPU; a container must be started with the GPU passed through"
        )
        raise TracksideError("device", f"cannot list the processes on GPU {index}: {found.why}", remedy)
    return found


def reason_names(mask: int) -> list[str]:
    """Names of the set bits; a bit that this version does not know is given as a number, not dropped."""
    names = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return [*names, hex(rest)] if rest else names
