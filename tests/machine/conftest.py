"""A real GPU where there is one, a stand-in for pynvml where there is none, and made-up machines to read."""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from trackside.machine.nvml import Nvml
from trackside.machine.system_files import Unknown


@pytest.fixture
def gpu() -> int:
    """NVML's index of a real GPU; the test is skipped, with the reason, where there is none."""
    nvml = Nvml.open()
    if isinstance(nvml, Unknown):
        pytest.skip(f"needs an NVIDIA GPU: {nvml.why}")
    with nvml:
        device = nvml.device(0)
    if isinstance(device, Unknown):
        pytest.skip(f"needs an NVIDIA GPU: {device.why}")
    return 0


class FakeNvmlError(Exception):
    pass


class _FabricInfo(ctypes.Structure):
    _fields_ = (
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint8),
    )


class FakePynvml:
    """Answers of one H200, in the shapes of nvidia-ml-py; `refused` names functions that fail as NVML's do.

    `test_nvml` compares its signatures with the real package; gpu tests ask a real GPU the same questions.
    """

    NVMLError = FakeNvmlError
    c_nvmlGpuFabricInfo_t = _FabricInfo

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.processes: list[tuple[int, int | None]] = []
        self.reasons = 0x4
        self.violations = {0: 5_000_000_000, 1: 0}
        self.fields = {82: 44, 186: 345_678, 230: 0}
        self.count = 1

    def __getattribute__(self, name: str) -> object:
        if name.startswith("nvml") and name in object.__getattribute__(self, "refused"):

            def refuse(*arguments: object) -> None:
                raise FakeNvmlError("Not Supported")

            return refuse
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13000

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        return f"program-{pid}"

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index >= self.count:
            raise FakeNvmlError("Invalid Argument")
        return "handle"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return "handle"

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: str) -> bytes:
        return b"GPU-8a4e2c54-0000-0000-0000-000000000000"

    def nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(busId="00000000:00:05.0")

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(total=150754820096, free=150000000000, used=754820096)

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        return (9, 0)

    def nvmlDeviceGetPowerManagementLimit(self, handle: str) -> int:
        return 700000

    def nvmlDeviceGetEccMode(self, handle: str) -> list[int]:
        return [1, 1]

    def nvmlDeviceGetMigMode(self, device: str) -> list[int]:
        return [0, 0]

    def nvmlDeviceGetComputeMode(self, handle: str) -> int:
        return 0

    def nvmlDeviceGetPersistenceMode(self, handle: str) -> int:
        return 1

    def nvmlDeviceGetClockInfo(self, handle: str, type: int) -> int:
        return {1: 1980, 2: 3201}[type]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 123456

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 41

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        return self.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self.reasons

    def nvmlDeviceGetViolationStatus(self, device: str, perfPolicyType: int) -> SimpleNamespace:
        return SimpleNamespace(referenceTime=1, violationTime=self.violations[perfPolicyType])

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=37, memory=12)

    def nvmlDeviceGetVbiosVersion(self, handle: str) -> str:
        return "96.00.C5.00.01"

    def nvmlDeviceGetGspFirmwareVersion(self, handle: str) -> bytes:
        return b"580.159.04"

    def nvmlDeviceGetBAR1MemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(bar1Total=1 << 38, bar1Free=(1 << 38) - 4096, bar1Used=4096)

    def nvmlDeviceGetVirtualizationMode(self, handle: str) -> int:
        return 1

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: str) -> int:
        return 700000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700000

    def nvmlDeviceGetTemperatureThreshold(self, handle: str, threshold: int) -> int:
        return {0: 92, 1: 89}[threshold]

    def nvmlDeviceGetMaxClockInfo(self, handle: str, type: int) -> int:
        return {1: 1980, 2: 3201}[type]

    def nvmlDeviceGetApplicationsClock(self, handle: str, type: int) -> int:
        return {1: 1980, 2: 3201}[type]

    def nvmlDeviceGetDefaultApplicationsClock(self, handle: str, type: int) -> int:
        return {1: 1980, 2: 3201}[type]

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: str) -> int:
        return 5

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: str) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: str) -> int:
        return 16

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: str) -> int:
        return 16

    def nvmlDeviceGetPcieReplayCounter(self, handle: str) -> int:
        return 0

    def nvmlDeviceGetTotalEccErrors(self, handle: str, errorType: int, counterType: int) -> int:
        return 2 * errorType + counterType

    def nvmlDeviceGetRemappedRows(self, device: str) -> tuple[int, int, int, int]:
        return (1, 0, 0, 0)

    def nvmlDeviceGetFieldValues(self, handle: str, fieldIds: list[int]) -> list[SimpleNamespace]:
        # A count of bytes is of type 3, unsigned long long; the others are of type 1, unsigned.
        counts = {83: 5_000_000, 197: 7 << 40, 198: 9 << 40}
        return [
            SimpleNamespace(nvmlReturn=0, valueType=3, value=SimpleNamespace(ullVal=counts[field]))
            if field in counts
            else SimpleNamespace(nvmlReturn=0, valueType=1, value=SimpleNamespace(uiVal=self.fields[field]))
            if field in self.fields
            else SimpleNamespace(nvmlReturn=3, valueType=0, value=SimpleNamespace(dVal=0.0))
            for field in fieldIds
        ]

    def nvmlErrorString(self, result: int) -> str:
        return "Not Supported"

    def nvmlDeviceGetArchitecture(self, device: str) -> int:
        return 9

    def nvmlDeviceGetCpuAffinity(self, handle: str, cpuSetSize: int) -> list[int]:
        return [0xF, 1, *[0] * (cpuSetSize - 2)]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return 5_000_000

    def nvmlSystemGetConfComputeState(self) -> SimpleNamespace:
        return SimpleNamespace(environment=0, ccFeature=0, devToolsMode=0)

    def nvmlDeviceGetGpuFabricInfo(self, device: str, gpuFabricInfo: object) -> int:
        gpuFabricInfo._obj.state = 3  # type: ignore[attr-defined]
        return 0

    def nvmlDeviceGetTopologyCommonAncestor(self, device1: str, device2: str) -> int:
        return 50

    def nvmlDeviceGetP2PStatus(self, device1: str, device2: str, p2pIndex: int) -> int:
        return 0 if p2pIndex == 2 else 3

    def nvmlDeviceGetNvLinkVersion(self, device: str, link: int) -> int:
        return 7

    def nvmlDeviceGetNvLinkState(self, device: str, link: int) -> int:
        if link >= 18:
            raise FakeNvmlError("Invalid Argument")
        return 1

    def nvmlDeviceGetNvLinkErrorCounter(self, device: str, link: int, counter: int) -> int:
        return counter

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in self.processes]


@pytest.fixture
def pynvml(monkeypatch: pytest.MonkeyPatch) -> FakePynvml:
    fake = FakePynvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


MakeMachine = Callable[[dict[str, str]], Path]


@pytest.fixture
def machine(tmp_path: Path) -> MakeMachine:
    """Writes files below a folder that then stands for the root of another machine."""

    def make(files: dict[str, str]) -> Path:
        root = tmp_path / "machine"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return make
