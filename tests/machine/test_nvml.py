import inspect
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trackside.machine
from trackside.machine import nvml as ours
from trackside.machine.nvml import Nvml, answered, as_text, gpu_processes, reason_names, understood
from trackside.machine.system_files import Unknown
from trackside.records.errors import TracksideError

REAL = pytest.importorskip("pynvml")


def used_functions() -> set[str]:
    folder = Path(trackside.machine.__file__).parent
    found = (re.findall(r'"(nvml[A-Z]\w+)"', path.read_text()) for path in folder.glob("*.py"))
    return {name for names in found for name in names}


def test_every_nvml_function_that_is_asked_for_exists_in_the_package() -> None:
    assert len(used_functions()) > 20
    assert [name for name in used_functions() if not hasattr(REAL, name)] == []


def test_the_stand_in_has_the_real_signatures(pynvml: Any) -> None:
    for name in used_functions():
        real = list(inspect.signature(getattr(REAL, name)).parameters.values())
        needed = [p for p in real if p.default is inspect.Parameter.empty and p.kind is not p.VAR_KEYWORD]
        fake = inspect.signature(getattr(pynvml, name)).parameters
        assert len(fake) == len(needed), name


def test_our_enumerations_are_nvmls() -> None:
    assert ours.CLOCK_SM == REAL.NVML_CLOCK_SM
    assert ours.CLOCK_MEMORY == REAL.NVML_CLOCK_MEM
    assert ours.TEMPERATURE_GPU == REAL.NVML_TEMPERATURE_GPU
    assert ours.POLICY_POWER == REAL.NVML_PERF_POLICY_POWER
    assert ours.POLICY_THERMAL == REAL.NVML_PERF_POLICY_THERMAL
    for bit, name in ours.REASONS.items():
        matching = [n for n in dir(REAL) if n.startswith(f"nvmlClocksThrottleReason{name}")]
        assert [getattr(REAL, n) for n in matching][:1] == [bit], name


def test_reasons_are_named_and_an_unknown_bit_is_not_dropped() -> None:
    assert reason_names(0) == []
    assert reason_names(0x4 | 0x40) == ["SwPowerCap", "HwThermal"]
    assert reason_names(0x1 | 0x800) == ["GpuIdle", "0x800"]


def test_a_refused_query_is_unknown_with_nvmls_own_words(pynvml: Any) -> None:
    pynvml.refused.add("nvmlDeviceGetPowerUsage")
    nvml = Nvml.open()
    assert isinstance(nvml, Nvml)
    assert nvml.ask("nvmlDeviceGetPowerUsage", "handle") == Unknown(
        "nvmlDeviceGetPowerUsage", "Not Supported"
    )


def test_a_function_that_the_package_lacks_is_unknown(pynvml: Any) -> None:
    answer = Nvml(pynvml).ask("nvmlDeviceGetSomethingNew", "handle")
    assert isinstance(answer, Unknown)


def test_an_old_driver_is_asked_by_the_old_name(pynvml: Any) -> None:
    pynvml.refused.add("nvmlDeviceGetCurrentClocksEventReasons")
    assert Nvml(pynvml).clock_reasons("handle") == 0x4


def test_processes_carry_pid_memory_and_name(pynvml: Any) -> None:
    pynvml.processes = [(42, 1 << 30), (43, None)]
    pynvml.refused.add("nvmlSystemGetProcessName")
    assert gpu_processes(0) == [
        {"pid": 42, "used_memory": 1 << 30, "name": None},
        {"pid": 43, "used_memory": None, "name": None},
    ]


def test_not_knowing_the_processes_is_an_error_and_not_an_empty_list(pynvml: Any) -> None:
    pynvml.refused.add("nvmlDeviceGetComputeRunningProcesses")
    with pytest.raises(TracksideError, match="Not Supported") as caught:
        gpu_processes(0)
    assert caught.value.kind == "device"
    with pytest.raises(TracksideError, match="Invalid Argument"):
        gpu_processes(7)


class Silent(Exception):
    """An error whose words cannot be had, as NVML's own where the library is gone."""

    def __str__(self) -> str:
        raise OSError("no library")


def test_an_error_without_words_is_unknown_by_its_name(pynvml: Any) -> None:
    def fail(handle: str) -> None:
        raise Silent

    pynvml.nvmlDeviceGetName = fail
    assert Nvml(pynvml).ask("nvmlDeviceGetName", "handle") == Unknown("nvmlDeviceGetName", "Silent")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        [None],
        [SimpleNamespace(nvmlReturn=0, valueType=99, value=SimpleNamespace())],
        [SimpleNamespace(nvmlReturn=0, valueType=None, value=None)],
        [SimpleNamespace(nvmlReturn=0, valueType=1, value=None)],
    ],
)
def test_a_field_in_an_odd_shape_is_unknown(pynvml: Any, answer: object) -> None:
    pynvml.nvmlDeviceGetFieldValues = lambda handle, fields: answer
    assert isinstance(Nvml(pynvml).field("handle", 82), Unknown)


@pytest.mark.parametrize("answer", [None, [None], [SimpleNamespace(pid=None, usedGpuMemory=1)], 7])
def test_processes_in_an_odd_shape_are_unknown(pynvml: Any, answer: object) -> None:
    pynvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: answer
    assert isinstance(Nvml(pynvml).processes("handle"), Unknown)


def test_bindings_whose_fabric_cannot_be_asked_for_leave_it_unknown(pynvml: Any) -> None:
    pynvml.c_nvmlGpuFabricInfo_t = None
    assert isinstance(Nvml(pynvml).fabric_state("handle"), Unknown)


def test_what_is_understood_is_taken_and_what_is_not_is_unknown() -> None:
    unknown = Unknown("x", "why")
    assert understood(unknown, int) is unknown
    assert understood(3, lambda n: n + 1) == 4
    assert understood(b"H\xff200", as_text) == "H\ufffd200"
    found = [understood(odd, as_text) for odd in (None, 7)]
    assert all(isinstance(one, Unknown) and "odd answer" in one.why for one in found)


@pytest.mark.parametrize("error", [OSError("broken"), RuntimeError("broken"), SyntaxError("broken")])
def test_bindings_that_cannot_be_imported_are_unknown_with_the_words(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr("importlib.import_module", fail)
    found = Nvml.open()
    assert isinstance(found, Unknown)
    assert "cannot be imported: broken" in found.why


@pytest.fixture
def hang(pynvml: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A driver that hangs at the name until the event is set, and little patience with it."""
    over = threading.Event()
    monkeypatch.setattr(ours, "_ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(ours, "_PART_SECONDS", 0.05)
    monkeypatch.setattr(ours._Reading, "silent_seconds", 0.0)
    pynvml.nvmlDeviceGetName = lambda handle: over.wait(60)
    yield over
    over.set()
    for thread in threading.enumerate():
        if isinstance(thread, ours._Reading):
            thread.join()


def test_after_a_question_without_an_answer_all_others_are_unknown_at_once(
    pynvml: Any, hang: threading.Event
) -> None:
    nvml = Nvml.open()
    assert isinstance(nvml, Nvml)
    found = answered(lambda: nvml.ask("nvmlDeviceGetName", "handle"))
    assert found == Unknown("gpus", "NVML did not answer within 0.05 s: the driver hangs")
    assert nvml.ask("nvmlDeviceGetUUID", "handle").why == found.why
    assert Nvml.open() == found
    with pytest.raises(TracksideError, match="the driver hangs"):
        gpu_processes(0)


def test_the_first_question_which_may_wake_many_gpus_has_more_time(
    pynvml: Any, hang: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "_START_SECONDS", 1.0)
    pynvml.nvmlInit = lambda: hang.wait(0.3)
    assert isinstance(Nvml.open(), Nvml)
    monkeypatch.setattr(ours, "_START_SECONDS", 0.1)
    pynvml.nvmlInit = lambda: hang.wait(60)
    assert Nvml.open() == Unknown("gpus", "NVML did not answer within 0.1 s: the driver hangs")


def test_a_long_reading_whose_questions_are_answered_does_not_hang(
    pynvml: Any, hang: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each is answered within the limit, all of them together are not.
    monkeypatch.setattr(ours, "_ANSWER_SECONDS", 0.5)
    pynvml.nvmlDeviceGetPowerUsage = lambda handle: hang.wait(0.03)
    questions = 20
    found = answered(
        lambda: [Nvml(pynvml).ask("nvmlDeviceGetPowerUsage", "handle") for _ in range(questions)]
    )
    assert found == [False] * questions


def test_a_reading_inside_another_needs_no_thread_of_its_own() -> None:
    outer, inner = answered(lambda: (threading.current_thread(), answered(threading.current_thread)))  # type: ignore[misc]
    assert outer is inner
    assert outer is not threading.current_thread()


def test_what_a_reading_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        answered(lambda: 1 // 0)


def test_asking_outside_a_reading_starts_no_thread(pynvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml.open()
    assert isinstance(nvml, Nvml)
    # A sampler asks hundreds of times a second, and may use 1 % of a core.
    monkeypatch.setattr(threading.Thread, "start", lambda thread: sys.exit("started a thread"))
    assert nvml.ask("nvmlDeviceGetPowerUsage", "handle") == 123456


@pytest.mark.gpu
def test_a_real_gpu_answers_every_query(gpu: int) -> None:
    nvml = Nvml.open()
    assert isinstance(nvml, Nvml)
    with nvml:
        assert isinstance(nvml.clock_reasons(nvml.device(gpu)), int)
    for process in gpu_processes(gpu):
        assert process["pid"] != os.getpid()
