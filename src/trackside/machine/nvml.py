"""The one door to NVML: every question answers with a value or with an `Unknown`, never with an exception.

A driver may also hang, and a call into it cannot be ended. What must not wait for ever goes through
`answered`, which reads in a thread that can be left behind; from then on every question is Unknown at once.
"""

import ctypes
import importlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Generic, Self, TypedDict, TypeVar

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
    "answered",
    "as_text",
    "gpu_processes",
    "reason_names",
    "understood",
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


# One question takes microseconds, on some virtual machines milliseconds. The first wakes GPUs that no driver
# daemon keeps awake, one after the other, each for a second or more.
_ANSWER_SECONDS: Final = 5.0
_START_SECONDS: Final = 30.0
# Waited in parts, so that a process that was stopped meanwhile does not take that for silence.
_PART_SECONDS: Final = 0.5

_T = TypeVar("_T")


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
        return answered(cls._opened)

    @classmethod
    def _opened(cls) -> "Nvml | Unknown":
        try:
            library: Any = importlib.import_module("pynvml")
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name == "pynvml":
                return Unknown("gpus", "the package nvidia-ml-py is not installed")
            # Another package of that name, or half of one.
            return Unknown(
                "gpus", f"pynvml, of the package nvidia-ml-py, cannot be imported: {_words(error)}"
            )
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
        if _Reading.silent_seconds:
            return Unknown(function, _silence())
        thread = threading.current_thread()
        if isinstance(thread, _Reading):
            thread.questions += 1
            thread.allowed = _START_SECONDS if function == "nvmlInit" else _ANSWER_SECONDS
        try:
            value = getattr(self._library, function)(*arguments)
        except AttributeError:
            return Unknown(function, "the installed nvidia-ml-py does not know it")
        except Exception as error:
            # Besides NVMLError, the bindings let ctypes and decoding errors through; none may end a run.
            return Unknown(function, _words(error))
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
        return understood(answer, lambda found: self._value(found[0], number))

    def _value(self, found: Any, number: int) -> Any:
        if found.nvmlReturn != 0:
            words = self.ask("nvmlErrorString", found.nvmlReturn)
            return Unknown(f"field {number}", words if isinstance(words, str) else str(found.nvmlReturn))
        return getattr(found.value, _VALUES[found.valueType])

    def fabric_state(self, device: object) -> Any:
        """How far the GPU has come in joining its NVLink fabric, as NVML's number, or an Unknown."""
        try:
            info = self._library.c_nvmlGpuFabricInfo_t()
        except Exception:
            return Unknown("fabric", "the installed nvidia-ml-py does not know it")
        answer = self.ask("nvmlDeviceGetGpuFabricInfo", device, ctypes.byref(info))
        return understood(answer, lambda _: int(info.state))

    def processes(self, device: object) -> list[GpuProcess] | Unknown:
        """Processes with a compute context on the GPU. Pids are the driver's: in a container, the host's."""
        running = self.ask("nvmlDeviceGetComputeRunningProcesses", device)
        return understood(running, lambda answer: [self._process(process) for process in answer])

    def _process(self, process: Any) -> GpuProcess:
        name = self.ask("nvmlSystemGetProcessName", process.pid)
        memory = process.usedGpuMemory
        return {
            "pid": int(process.pid),
            "used_memory": None if memory is None else int(memory),
            "name": name if isinstance(name, str) else None,
        }


class _Reading(threading.Thread, Generic[_T]):
    """A reading through NVML, in a thread that does not keep the process alive."""

    silent_seconds = 0.0
    """How long NVML has left a question of this process unanswered; 0 where it has answered all."""

    def __init__(self, read: Callable[[], _T]) -> None:
        super().__init__(name="nvml", daemon=True)
        self._read = read
        self._outcome: list[_T] = []
        self._error: BaseException | None = None
        self.allowed = _ANSWER_SECONDS
        """Seconds for the present question."""
        self.questions = 0
        """How many were asked: as long as they become more, nothing hangs."""

    def run(self) -> None:
        try:
            self._outcome.append(self._read())
        except BaseException as error:
            self._error = error

    def result(self) -> _T | Unknown:
        """What was read, however long it took; an Unknown once a single question has no answer in time."""
        asked, waited = self.questions, 0.0
        while self.is_alive():
            if waited >= self.allowed:
                _Reading.silent_seconds = waited
                return Unknown("gpus", _silence())
            self.join(_PART_SECONDS)
            waited = waited + _PART_SECONDS if asked == self.questions else 0.0
            asked = self.questions
        if self._error is not None:
            raise self._error
        return self._outcome[0]


def answered(read: Callable[[], _T]) -> _T | Unknown:
    """Run a reading that asks NVML; an Unknown as soon as one of its questions stays without an answer.

    The thread costs some 0.2 ms, so this is for whole readings. A sampler asks by itself.
    """
    if _Reading.silent_seconds:
        return Unknown("gpus", _silence())
    if isinstance(threading.current_thread(), _Reading):
        return read()
    reading = _Reading(read)
    reading.start()
    return reading.result()


def understood(answer: Any, take: Callable[[Any], _T]) -> _T | Unknown:
    """What is taken from an answer; an Unknown where it has another shape than NVML's documentation says."""
    if isinstance(answer, Unknown):
        return answer
    try:
        return take(answer)
    except Exception as error:
        return Unknown("answer", f"NVML gave an odd answer ({_words(error)})")


def as_text(value: Any) -> str:
    """A text of NVML's, for `understood`: bindings before 11.5 answer in bytes."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        raise TypeError(f"needed a text, found {value!r:.40}")
    return text


def _silence() -> str:
    return f"NVML did not answer within {_Reading.silent_seconds:g} s: the driver hangs"


def _words(error: Exception) -> str:
    """What an exception says. NVML's own ask the library for their words, which may fail in turn."""
    try:
        said = str(error)
    except Exception:
        said = ""
    return said or type(error).__name__


def gpu_processes(index: int | str) -> list[GpuProcess]:
    """Who computes on a GPU now, by NVML index or UUID.

    Raises:
        TracksideError: kind `device`, where NVML cannot say. An empty list always means "nobody".
    """
    found = answered(lambda: _processes_of(index))
    if isinstance(found, Unknown):
        remedy = (
            "check that `nvidia-smi` lists the GPU; a container must be started with the GPU passed through"
        )
        raise TracksideError("device", f"cannot list the processes on GPU {index}: {found.why}", remedy)
    return found


def _processes_of(index: int | str) -> list[GpuProcess] | Unknown:
    nvml = Nvml.open()
    if isinstance(nvml, Unknown):
        return nvml
    with nvml:
        device = nvml.device(index)
        return device if isinstance(device, Unknown) else nvml.processes(device)


def reason_names(mask: int) -> list[str]:
    """Names of the set bits; a bit that this version does not know is given as a number, not dropped."""
    names = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return [*names, hex(rest)] if rest else names
