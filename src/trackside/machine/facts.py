"""What this machine is: processor, memory, limits, GPUs and software, read without root, torch or a GPU.

`facts` never raises: what could not be read stands in `unknown` with the reason, its field None or empty.
"""

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from trackside.machine.nvml import Nvml, answered, as_text, understood
from trackside.machine.system_files import (
    Unknown,
    cpu_quota,
    find_cgroup,
    parse_cpu_list,
    parse_fields,
    read_text,
)

__all__ = [
    "Cache",
    "Cpu",
    "Gpu",
    "Limits",
    "MachineFacts",
    "Memory",
    "NumaNode",
    "Software",
    "facts",
    "fingerprint",
    "gpu_numbered",
    "visible_gpus",
]

# The vector and matrix extensions that the field's CPU kernels dispatch on (oneDNN, FBGEMM, ATen).
_ISA_OF_INTEREST = (
    *("avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"),
    *("avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16"),
    *("asimd", "asimddp", "fphp", "sve", "sve2", "bf16", "i8mm"),
)

# A version 1 cgroup without a memory limit reports the largest page-aligned 64-bit number instead of "max".
_NO_LIMIT_BYTES = 1 << 60

_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}


@dataclass(frozen=True, slots=True)
class Cache:
    level: int
    kind: str
    """`data`, `instruction` or `unified`."""
    bytes: int
    """Of one instance."""
    instances: int


@dataclass(frozen=True, slots=True)
class NumaNode:
    node: int
    cpus: tuple[int, ...]
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Cpu:
    model: str | None = None
    architecture: str | None = None
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    """Online hardware threads; `allowed` are those that this process may use."""
    allowed: tuple[int, ...] = ()
    smt: bool | None = None
    caches: tuple[Cache, ...] = ()
    isa: tuple[str, ...] = ()
    numa: tuple[NumaNode, ...] = ()

    def cache_bytes(self, level: int) -> int:
        """All data-holding caches of a level together; 0 where unknown."""
        return sum(c.bytes * c.instances for c in self.caches if c.level == level and c.kind != "instruction")


@dataclass(frozen=True, slots=True)
class Memory:
    total_bytes: int | None = None
    swap_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What the control groups allow. None means no limit, unless `unknown` names the field."""

    cgroup_version: int | None = None
    cpu_quota: float | None = None
    """CPUs' worth of time: 1.5 is three halves of one CPU in each period."""
    cpuset: tuple[int, ...] | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    """NVML's index. CUDA may number differently: match on `uuid`."""
    name: str | None
    uuid: str | None
    pci_bus_id: str | None
    memory_bytes: int | None
    compute_capability: str | None
    driver: str | None
    power_limit_w: float | None
    ecc: bool | None
    mig: bool | None
    compute_mode: str | None
    persistence: bool | None


@dataclass(frozen=True, slots=True)
class Software:
    """Versions. None means not installed, unless `unknown` names the field."""

    python: str | None = None
    libc: str | None = None
    torch: str | None = None
    triton: str | None = None
    numpy: str | None = None
    cuda_driver: str | None = None
    """The newest CUDA that the driver supports; torch's own CUDA is in its version's suffix."""
    nvidia_driver: str | None = None


@dataclass(frozen=True, slots=True)
class MachineFacts:
    cpu: Cpu
    memory: Memory
    limits: Limits
    kernel: str | None
    virtualisation: str | None
    """`none` on bare metal, else the hypervisor."""
    container: str | None
    """The kind of container; None where there is no sign of one."""
    gpus: tuple[Gpu, ...]
    software: Software
    unknown: tuple[Unknown, ...]

    def to_record(self) -> dict[str, Any]:
        """Plain data with the record's field names, the fingerprint first."""
        return {"fingerprint": fingerprint(self), **asdict(self)}


@dataclass(frozen=True, slots=True)
class _Drivers:
    nvidia: str | None = None
    cuda: str | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What NVML tells."""

    drivers: _Drivers = _Drivers()
    gpus: tuple[Gpu, ...] = ()
    unknown: tuple[Unknown, ...] = ()


_T = TypeVar("_T")


class _Notes:
    """Collects what could not be read, so that readers can go on with None."""

    def __init__(self) -> None:
        self.unknown: list[Unknown] = []

    def known(self, what: str, value: Any) -> Any:
        if isinstance(value, Unknown):
            self.unknown.append(Unknown(what, value.why))
            return None
        return value

    def section(self, what: str, read: Callable[[], _T], otherwise: _T) -> _T:
        """A last resort: a file in a shape that nobody foresaw costs its section, not the whole answer."""
        try:
            return read()
        except Exception as error:
            self.unknown.append(Unknown(what, f"{type(error).__name__}: {error}"))
            return otherwise


def facts(root: Path = Path("/")) -> MachineFacts:
    """Read the machine, in about 10 ms without a GPU.

    Args:
        root: where `proc` and `sys` are looked for; another one serves to read a recorded machine.
    """
    notes = _Notes()
    seen = answered(_see_gpus)
    if isinstance(seen, Unknown):
        seen = _Seen(unknown=(seen,))
    notes.unknown += seen.unknown
    drivers = seen.drivers
    return MachineFacts(
        cpu=notes.section("cpu", lambda: _cpu(root, notes), Cpu()),
        memory=notes.section("memory", lambda: _memory(root, notes), Memory()),
        limits=notes.section("limits", lambda: _limits(root, notes), Limits()),
        kernel=notes.known("kernel", _kernel(root)),
        virtualisation=notes.known("virtualisation", _virtualisation(root)),
        container=notes.section("container", lambda: _container(root), None),
        gpus=seen.gpus,
        software=notes.section("software", lambda: _software(drivers, notes), Software()),
        unknown=tuple(notes.unknown),
    )


def fingerprint(machine: MachineFacts) -> str:
    """16 hex digits of what decides the speed: the same after a reboot, another after a driver update."""
    cpu = machine.cpu
    decides = {
        "cpu": [cpu.model, cpu.sockets, cpu.cores, cpu.threads],
        "memory": _rounded_memory(machine.memory.total_bytes),
        "gpus": sorted([gpu.name or "", gpu.uuid or ""] for gpu in machine.gpus),
        "driver": machine.software.nvidia_driver,
        "kernel": machine.kernel,
        "virtualisation": machine.virtualisation,
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


def gpu_numbered(
    machine: MachineFacts, number: int, environment: Mapping[str, str] = os.environ
) -> int | str:
    """The GPU that CUDA gives this number: its UUID where it is known, else NVML's index.

    CUDA_VISIBLE_DEVICES chooses and orders GPUs, up to the first entry that makes no sense. A number beyond
    those is returned as it is, for CUDA itself to refuse. Indices count as NVML's, in the order of the PCI
    bus; CUDA's own can differ where GPUs do, unless CUDA_DEVICE_ORDER is PCI_BUS_ID.
    """
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return {gpu.index: gpu.uuid for gpu in machine.gpus}.get(number) or number
    visible = visible_gpus(machine, environment)
    return visible[number] if number < len(visible) else number


def visible_gpus(machine: MachineFacts, environment: Mapping[str, str] = os.environ) -> list[int | str]:
    """The GPUs that a program started here may use, each as `gpu_numbered` names it."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [gpu.uuid or gpu.index for gpu in machine.gpus]
    visible: list[int | str] = []
    for entry in chosen.split(","):
        gpu = _gpu_named(machine, entry.strip())
        if gpu is None:
            break
        visible.append(gpu)
    return visible


def _gpu_named(machine: MachineFacts, entry: str) -> int | str | None:
    """What an entry of CUDA_VISIBLE_DEVICES stands for; None where it ends the list."""
    if entry.startswith("MIG-"):
        return entry
    if entry.startswith("GPU-"):
        # The start of a UUID is enough where it fits one GPU only.
        fitting = [gpu.uuid for gpu in machine.gpus if gpu.uuid and gpu.uuid.startswith(entry)]
        return fitting[0] if len(fitting) == 1 else entry
    # CUDA reads numbers as strtoul does, to the first sign that is no digit.
    digits = re.match(r"\+?([0-9]+)", entry)
    if digits is None:
        return None
    index = int(digits[1])
    known = {gpu.index: gpu.uuid for gpu in machine.gpus}
    return None if known and index > max(known) else known.get(index) or index


def _rounded_memory(total: int | None) -> int | None:
    # The kernel reports the installed memory less its own reservations, which differ by megabytes
    # between boots. Rounding up to an eighth of a power of two gives the installed size, far from such noise.
    if not total:
        return total
    step = max(1, 1 << (math.ceil(math.log2(total)) - 4))
    return -(-total // step) * step


def _cpu(root: Path, notes: _Notes) -> Cpu:
    info = notes.known("cpu model", read_text(root / "proc/cpuinfo")) or ""
    flags = _cpuinfo(info, "flags") or _cpuinfo(info, "Features") or ""
    system = root / "sys/devices/system"
    online = notes.known("cpu topology", read_text(system / "cpu/online"))
    cpus = parse_cpu_list(online) if online else ()

    siblings, packages = set(), set()
    for cpu in cpus:
        topology = system / f"cpu/cpu{cpu}/topology"
        group = read_text(topology / "thread_siblings_list")
        package = read_text(topology / "physical_package_id")
        if isinstance(group, str) and isinstance(package, str):
            siblings.add(group)
            packages.add(package)
    if cpus and not siblings:
        notes.unknown.append(Unknown("cpu sockets and cores", "no topology under /sys/devices/system/cpu"))
    return Cpu(
        model=_cpu_model(info, notes),
        architecture=platform.machine() or None,
        sockets=len(packages) or None,
        cores=len(siblings) or None,
        threads=len(cpus) or os.cpu_count(),
        allowed=_allowed_cpus(notes),
        smt=len(cpus) > len(siblings) if siblings else None,
        caches=_caches(system, cpus, notes),
        isa=tuple(flag for flag in _ISA_OF_INTEREST if flag in set(flags.split())),
        numa=_numa(system, notes),
    )


def _cpuinfo(text: str, field: str) -> str | None:
    found = re.search(rf"^{re.escape(field)}\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else None


def _cpu_model(info: str, notes: _Notes) -> str | None:
    model = _cpuinfo(info, "model name")
    if model:
        return model
    # Arm kernels give numbers instead of a name.
    implementer, part = _cpuinfo(info, "CPU implementer"), _cpuinfo(info, "CPU part")
    if implementer and part:
        return f"implementer {implementer} part {part}"
    if info:
        notes.unknown.append(Unknown("cpu model", "/proc/cpuinfo names none"))
    return platform.processor() or None


def _allowed_cpus(notes: _Notes) -> tuple[int, ...]:
    if not hasattr(os, "sched_getaffinity"):
        notes.unknown.append(Unknown("allowed cpus", "this system has no sched_getaffinity"))
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


def _caches(system: Path, cpus: tuple[int, ...], notes: _Notes) -> tuple[Cache, ...]:
    instances: dict[tuple[int, str, int], set[str]] = {}
    for cpu in cpus:
        for folder in (system / f"cpu/cpu{cpu}/cache").glob("index*"):
            read = [read_text(folder / name) for name in ("level", "type", "size", "shared_cpu_list")]
            texts = [text for text in read if isinstance(text, str)]
            if len(texts) == 4:
                level, kind, size, shared = texts
                instances.setdefault((int(level), kind.lower(), _bytes(size)), set()).add(shared)
    if not instances:
        notes.unknown.append(Unknown("cpu caches", "no cache folders under /sys/devices/system/cpu"))
    return tuple(Cache(*key, instances=len(shared)) for key, shared in sorted(instances.items()))


def _bytes(size: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(size[:-1]) * units[size[-1]] if size[-1] in units else int(size)


def _numa(system: Path, notes: _Notes) -> tuple[NumaNode, ...]:
    nodes = []
    for folder in system.glob("node/node[0-9]*"):
        cpus, memory = read_text(folder / "cpulist"), read_text(folder / "meminfo")
        if isinstance(cpus, str):
            total = re.search(r"MemTotal:\s+(\d+) kB", memory) if isinstance(memory, str) else None
            size = int(total.group(1)) * 1024 if total else None
            nodes.append(NumaNode(int(folder.name.removeprefix("node")), parse_cpu_list(cpus), size))
    if not nodes:
        notes.unknown.append(Unknown("numa nodes", "none listed under /sys/devices/system/node"))
    return tuple(sorted(nodes, key=lambda node: node.node))


def _memory(root: Path, notes: _Notes) -> Memory:
    text = notes.known("memory", read_text(root / "proc/meminfo"))
    if text is None:
        return Memory()
    fields = parse_fields(text)
    return Memory(*(fields[name] * 1024 if name in fields else None for name in ("MemTotal", "SwapTotal")))


def _limits(root: Path, notes: _Notes) -> Limits:
    def folders(controller: str) -> tuple[Path, ...]:
        group = notes.known(f"{controller} limit", find_cgroup(controller, root))
        if group is None:
            return ()
        versions.append(group.version)
        return tuple(group.folders)

    versions: list[int] = []
    quotas = [cpu_quota(folder) for folder in folders("cpu")]
    memory = [_memory_limit(folder) for folder in folders("memory")]
    cpusets = [_cpuset(folder) for folder in folders("cpuset")]
    return Limits(
        cgroup_version=max(versions, default=None),
        cpu_quota=min((quota for quota in quotas if quota is not None), default=None),
        # A group that sets none has its nearest ancestor's.
        cpuset=next((cpus for cpus in cpusets if cpus), None),
        memory_bytes=min((limit for limit in memory if limit is not None), default=None),
    )


def _memory_limit(folder: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        text = read_text(folder / name)
        if isinstance(text, str) and text.isdigit():
            return int(text) if int(text) < _NO_LIMIT_BYTES else None
    return None


def _cpuset(folder: Path) -> tuple[int, ...] | None:
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        text = read_text(folder / name)
        if isinstance(text, str) and text:
            return parse_cpu_list(text)
    return None


def _kernel(root: Path) -> str | Unknown:
    # From the file rather than os.uname, so that a recorded machine keeps its own kernel.
    return read_text(root / "proc/sys/kernel/osrelease")


def _virtualisation(root: Path) -> str | Unknown:
    release = _kernel(root)
    if isinstance(release, str) and "microsoft" in release.lower():
        return "wsl"
    info = read_text(root / "proc/cpuinfo")
    flags = _cpuinfo(info, "flags") if isinstance(info, str) else None
    dmi = [read_text(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    product = " ".join(text for text in dmi if isinstance(text, str))
    if flags is None:
        # Arm has no such flag: the firmware's names are all there is to go by.
        virtual = re.search(r"KVM|QEMU|Virtual|VMware|Google|EC2", product)
        return product if virtual else Unknown("virtualisation", "the CPU has no flag for it")
    if "hypervisor" not in flags.split():
        return "none"
    # Guests see their hypervisor's clock even where the firmware tables are missing.
    clocks = read_text(root / "sys/devices/system/clocksource/clocksource0/available_clocksource")
    found = [name for name in ("kvm", "xen", "hyperv") if isinstance(clocks, str) and name in clocks]
    kind = found[0] if found else "hypervisor"
    return f"{kind} ({product})" if product else kind


def _container(root: Path) -> str | None:
    signs = {
        "docker": (root / ".dockerenv").exists(),
        "podman": (root / "run/.containerenv").exists(),
        "kubernetes": "KUBERNETES_SERVICE_HOST" in os.environ,
        "apptainer": "APPTAINER_CONTAINER" in os.environ or "SINGULARITY_CONTAINER" in os.environ,
    }
    groups = read_text(root / "proc/self/cgroup")
    for name, mark in (("kubernetes", "kubepods"), ("docker", "/docker"), ("lxc", "/lxc")):
        signs[name] = signs.get(name, False) or (isinstance(groups, str) and mark in groups)
    # Kubernetes starts its containers through another runtime, so its sign is the more telling one.
    order = ("kubernetes", "apptainer", "docker", "podman", "lxc")
    return next((name for name in order if signs[name]), None)


def _see_gpus() -> _Seen:
    # With notes of its own: a reading that hangs may go on after it was given up.
    notes = _Notes()
    nvml = Nvml.open()
    if isinstance(nvml, Unknown):
        return _Seen(unknown=(nvml,))
    with nvml:
        drivers = notes.section("driver versions", lambda: _driver_versions(nvml, notes), _Drivers())
        gpus: tuple[Gpu, ...] = notes.section("gpus", lambda: _gpus(nvml, drivers.nvidia, notes), ())
    return _Seen(drivers, gpus, tuple(notes.unknown))


def _driver_versions(nvml: Nvml, notes: _Notes) -> _Drivers:
    driver = understood(nvml.ask("nvmlSystemGetDriverVersion"), as_text)
    cuda = understood(
        nvml.ask("nvmlSystemGetCudaDriverVersion_v2"), lambda n: f"{n // 1000}.{n % 1000 // 10}"
    )
    return _Drivers(notes.known("nvidia driver version", driver), notes.known("cuda driver version", cuda))


def _gpus(nvml: Nvml, driver: str | None, notes: _Notes) -> tuple[Gpu, ...]:
    count = notes.known("gpus", understood(nvml.ask("nvmlDeviceGetCount"), int)) or 0
    gpus = (_gpu(nvml, index, driver, notes) for index in range(count))
    return tuple(gpu for gpu in gpus if gpu)


def _gpu(nvml: Nvml, index: int, driver: str | None, notes: _Notes) -> Gpu | None:
    device = notes.known(f"gpu {index}", nvml.device(index))
    if device is None:
        return None

    def ask(what: str, function: str, take: Callable[[Any], Any]) -> Any:
        return notes.known(f"gpu {index} {what}", understood(nvml.ask(function, device), take))

    return Gpu(
        index=index,
        name=ask("name", "nvmlDeviceGetName", as_text),
        uuid=ask("uuid", "nvmlDeviceGetUUID", as_text),
        pci_bus_id=ask("pci bus", "nvmlDeviceGetPciInfo", lambda pci: as_text(pci.busId)),
        memory_bytes=ask("memory", "nvmlDeviceGetMemoryInfo", lambda memory: int(memory.total)),
        compute_capability=ask(
            "compute capability", "nvmlDeviceGetCudaComputeCapability", lambda pair: f"{pair[0]}.{pair[1]}"
        ),
        driver=driver,
        power_limit_w=ask("power limit", "nvmlDeviceGetPowerManagementLimit", lambda mw: mw / 1000),
        ecc=ask("ecc", "nvmlDeviceGetEccMode", lambda pair: bool(int(pair[0]))),
        mig=ask("mig", "nvmlDeviceGetMigMode", lambda pair: bool(int(pair[0]))),
        compute_mode=ask(
            "compute mode", "nvmlDeviceGetComputeMode", lambda mode: _COMPUTE_MODES.get(mode, str(int(mode)))
        ),
        persistence=ask("persistence", "nvmlDeviceGetPersistenceMode", lambda mode: bool(int(mode))),
    )


def _software(drivers: _Drivers, notes: _Notes) -> Software:
    return Software(
        python=f"{platform.python_implementation()} {platform.python_version()}",
        libc=" ".join(platform.libc_ver()).strip() or None,
        torch=_installed("torch", notes),
        triton=_installed("triton", notes),
        numpy=_installed("numpy", notes),
        cuda_driver=drivers.cuda,
        nvidia_driver=drivers.nvidia,
    )


def _installed(package: str, notes: _Notes) -> str | None:
    # From the package's metadata: importing torch would take seconds, and a process that measures must not.
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    except Exception as error:
        notes.unknown.append(Unknown(f"{package} version", f"{type(error).__name__}: {error}"))
        return None
