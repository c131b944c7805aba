"""What stands around the processor and the GPUs: disks, file systems, fabrics, profilers, and what fits what.

Read without root, torch or a GPU; what cannot be read stands in `unknown` with the reason.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from trackside.machine.facts import MachineFacts
from trackside.machine.system_files import Mount, Unknown, parse_mounts, read_text

__all__ = [
    "PROFILER_PLACES",
    "Disk",
    "Fabric",
    "FileSystem",
    "Fit",
    "Profiler",
    "Surroundings",
    "find_profiler",
    "surroundings",
]

PROFILER_PLACES = "on PATH, in /usr/local/cuda*/bin or /opt/nvidia"
"""Where `find_profiler` looks, for messages."""
_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs"})
_LOCAL = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "vfat", "exfat", "squashfs", "erofs")
)
_STACKED = frozenset({"overlay", "aufs", "fuse-overlayfs", "fuse.fuse-overlayfs"})
# Kernel parameter of the driver: 1 keeps hardware counters for root.
_COUNTERS_FOR_ROOT = re.compile(r"RmProfilingAdminOnly:\s*(\d)")
# From this level on perf cannot read hardware counters of one's own processes (kernel.org, perf-security).
_PERF_TOO_STRICT = 3


@dataclass(frozen=True, slots=True)
class Disk:
    name: str
    model: str | None
    bytes: int | None
    kind: Literal["nvme", "ssd", "rotating", "virtual"]
    scheduler: str | None


@dataclass(frozen=True, slots=True)
class FileSystem:
    point: str
    type: str
    kind: Literal["local", "network", "memory", "overlay", "other"]
    source: str
    bytes: int | None
    free: int | None


@dataclass(frozen=True, slots=True)
class Fabric:
    """One port of an InfiniBand or RoCE device."""

    device: str
    port: int
    link: str | None
    """`InfiniBand` or `Ethernet`."""
    state: str | None
    rate: str | None
    firmware: str | None


@dataclass(frozen=True, slots=True)
class Profiler:
    name: str
    path: str | None
    """None where it was not found."""
    counters: bool | None
    """Whether it may read hardware counters; None where that cannot be told, or it reads none."""
    why: str


@dataclass(frozen=True, slots=True)
class Fit:
    """Two versions that must go together."""

    what: str
    fits: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    disks: tuple[Disk, ...]
    filesystems: tuple[FileSystem, ...]
    fabrics: tuple[Fabric, ...]
    profilers: tuple[Profiler, ...]
    libraries: dict[str, str]
    """Versions of CUDA's libraries as Python packages: cuDNN, NCCL, cuBLAS."""
    fits: tuple[Fit, ...]
    unknown: tuple[Unknown, ...] = field(default=())

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def surroundings(machine: MachineFacts, root: Path = Path("/")) -> Surroundings:
    """Read them all, in some milliseconds.

    Args:
        machine: its facts; versions are compared with them.
        root: where `proc` and `sys` are looked for; another one serves to read a recorded machine.
    """
    unknown: list[Unknown] = []
    libraries = _libraries()
    mounts = read_text(root / "proc/self/mountinfo")
    if isinstance(mounts, Unknown):
        unknown.append(Unknown("file systems", mounts.why))
        mounts = ""
    return Surroundings(
        disks=tuple(_disks(root)),
        filesystems=tuple(_filesystems(mounts, live=root == Path("/"))),
        fabrics=tuple(_fabrics(root)),
        profilers=tuple(_profilers(root, bool(machine.gpus))),
        libraries=libraries,
        fits=tuple(_fits(machine)),
        unknown=tuple(unknown),
    )


def _disks(root: Path) -> Iterator[Disk]:
    folder = root / "sys/block"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    for name in names:
        # Loop devices, RAM disks and device-mapper volumes are no disks of their own.
        if re.match(r"(loop|ram|zram|dm-|md|sr|fd|nbd)\d*", name):
            continue
        size = read_text(folder / name / "size")
        rotating = read_text(folder / name / "queue/rotational")
        model = read_text(folder / name / "device/model")
        scheduler = read_text(folder / name / "queue/scheduler")
        chosen = re.search(r"\[(.+?)\]", scheduler) if isinstance(scheduler, str) else None
        kind: Literal["nvme", "ssd", "rotating", "virtual"] = (
            "nvme"
            if name.startswith("nvme")
            else "virtual"
            if re.match(r"(vd|xvd)", name)
            else "rotating"
            if rotating == "1"
            else "ssd"
        )
        yield Disk(
            name,
            model if isinstance(model, str) and model else None,
            # Always in sectors of 512 bytes, whatever the disk's own are.
            int(size) * 512 if isinstance(size, str) and size.isdigit() else None,
            kind,
            chosen[1] if chosen else None,
        )


def _filesystems(mounts: str, live: bool) -> Iterator[FileSystem]:
    seen: dict[str, FileSystem] = {}
    for mount in parse_mounts(mounts):
        sort, point = _sort_of(mount), mount.point
        if sort is None or point.startswith(("/proc", "/sys")):
            continue
        total, free = _room(point) if live else (None, None)
        seen[point] = FileSystem(point, mount.filesystem, sort, mount.source, total, free)
    yield from seen.values()


def _sort_of(mount: Mount) -> Literal["local", "network", "memory", "overlay", "other"] | None:
    type_ = mount.filesystem
    if mount.is_network:
        return "network"
    if type_ in _MEMORY:
        return "memory"
    if type_ in _STACKED:
        return "overlay"
    if type_ in _LOCAL:
        return "local"
    # What a virtual machine's host shares, and FUSE; the kernel's own views of itself hold no data.
    return "other" if type_.startswith("fuse.") or type_ in ("9p", "virtiofs") else None


def _room(point: str) -> tuple[int | None, int | None]:
    try:
        found = os.statvfs(point)
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _fabrics(root: Path) -> Iterator[Fabric]:
    folder = root / "sys/class/infiniband"
    for device in sorted(folder.iterdir()) if folder.is_dir() else []:
        firmware = _text(device / "fw_ver")
        ports = device / "ports"
        for port in sorted(ports.iterdir(), key=lambda p: p.name) if ports.is_dir() else []:
            yield Fabric(
                device.name,
                int(port.name) if port.name.isdigit() else 0,
                _text(port / "link_layer"),
                # As `4: ACTIVE`.
                (_text(port / "state") or "").rpartition(": ")[2] or None,
                _text(port / "rate"),
                firmware,
            )


def _profilers(root: Path, gpus: bool) -> Iterator[Profiler]:
    for name in ("nsys", "ncu", "perf", "py-spy"):
        path = find_profiler(name)
        if path is None:
            yield Profiler(name, None, None, f"not found {PROFILER_PLACES}")
        elif name == "ncu":
            yield Profiler(name, path, *_gpu_counters(root, gpus))
        elif name == "perf":
            yield Profiler(name, path, *_cpu_counters(root))
        else:
            yield Profiler(name, path, None, "reads no hardware counters by default")


def find_profiler(name: str) -> str | None:
    """Its path, also where it is installed and not on PATH."""
    places = [*Path("/usr/local").glob(f"cuda*/bin/{name}"), *Path("/opt/nvidia").glob(f"nsight-*/*/{name}")]
    return shutil.which(name) or next((str(path) for path in sorted(places, reverse=True)), None)


def _gpu_counters(root: Path, gpus: bool) -> tuple[bool | None, str]:
    if not gpus:
        return None, "there is no GPU"
    text = read_text(root / "proc/driver/nvidia/params")
    if isinstance(text, Unknown):
        return None, f"{text.what}: {text.why}"
    found = _COUNTERS_FOR_ROOT.search(text)
    if found is None:
        return None, "the driver does not say who may read counters"
    if found[1] == "0":
        return True, "the driver lets every user read counters"
    if os.geteuid() == 0:
        return True, "the driver keeps counters for root, and this is root"
    return False, "the driver keeps counters for root (NVreg_RestrictProfilingToAdminUsers=1)"


def _cpu_counters(root: Path) -> tuple[bool | None, str]:
    text = read_text(root / "proc/sys/kernel/perf_event_paranoid")
    if isinstance(text, Unknown):
        return None, f"{text.what}: {text.why}"
    allowed = os.geteuid() == 0 or int(text) < _PERF_TOO_STRICT
    return allowed, f"kernel.perf_event_paranoid is {text}"


def _libraries() -> dict[str, str]:
    found = {}
    for package in importlib.metadata.distributions():
        name = (package.metadata["Name"] or "").lower()
        match = re.fullmatch(r"nvidia-(cudnn|nccl|cublas|cusparselt|cuda-runtime|nvshmem)(-cu\d+)?", name)
        if match:
            found[match[1]] = package.version
    return dict(sorted(found.items()))


def _fits(machine: MachineFacts) -> Iterator[Fit]:
    software = machine.software
    built_for = _torch_cuda()
    if software.torch is None:
        yield Fit("torch", None, "torch is not installed here")
    elif not machine.gpus:
        yield Fit("torch's CUDA and the driver", None, "there is no GPU")
    elif built_for is None:
        yield Fit("torch's CUDA and the driver", False, f"torch {software.torch} is built without CUDA")
    elif software.cuda_driver is None:
        yield Fit("torch's CUDA and the driver", None, "the driver did not tell its CUDA version")
    else:
        # Within one major release newer libraries run on an older driver: minor version compatibility.
        fits = int(built_for.partition(".")[0]) <= int(software.cuda_driver.partition(".")[0])
        yield Fit(
            "torch's CUDA and the driver",
            fits,
            f"torch is built for CUDA {built_for}, the driver {software.nvidia_driver} runs up to CUDA "
            f"{software.cuda_driver}",
        )
    wanted = _required("torch", "triton")
    if software.torch is not None and wanted is not None:
        have = software.triton
        yield Fit(
            "torch and triton",
            have is not None and have.partition("+")[0] == wanted,
            f"torch asks for triton {wanted}; {have or 'none'} is installed",
        )


def _torch_cuda() -> str | None:
    """The CUDA release that torch is built for, from its own file: importing torch would take seconds."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    text = read_text(Path(spec.origin).with_name("version.py"))
    found = re.search(r"^cuda\b[^=]*=\s*'([\d.]+)'", text, re.MULTILINE) if isinstance(text, str) else None
    return found[1] if found else None


def _required(package: str, dependency: str) -> str | None:
    """The one version of a dependency that a package asks for; None for none, or a range."""
    try:
        requirements = importlib.metadata.requires(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for line in requirements:
        found = re.match(rf"{dependency}\s*\(?==\s*([^\s;)]+)", line)
        if found:
            return found[1]
    return None


def _text(path: Path) -> str | None:
    text = read_text(path)
    return text if isinstance(text, str) and text else None
