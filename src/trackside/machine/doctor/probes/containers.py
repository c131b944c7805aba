"""Probes of what a container puts between a job and its machine: limits, devices, placement, file systems."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.gpu_state import few, find_gpus
from trackside.machine.doctor.system import System, Unreadable
from trackside.machine.system_files import Unknown, parse_cpu_list, parse_fields

__all__ = ["find_container", "has_capability", "is_filtered"]

_GIB, _MIB = 1 << 30, 1 << 20

# What Docker and the Kubernetes runtimes mount at /dev/shm when nobody asks for more.
_SHM_DEFAULT = 64 * _MIB
# Workers with a few batches of images each hold more than some hundred MiB at a time.
_SHM_LEAST = 1 * _GIB
# A quota that is reached in fewer scheduling periods than this does not show in step times.
_THROTTLED_SHARE = 0.01

# Bits of the kernel's capability sets.
_IPC_LOCK, _SYS_PTRACE, _SYS_ADMIN, _SYS_NICE, _PERFMON = 14, 19, 21, 23, 38
# The value of Seccomp in /proc/self/status with a filter, such as Docker's profile.
_SECCOMP_FILTER = "2"

_LAYERED = ("overlay", "fuse-overlayfs", "fuse.fuse-overlayfs", "aufs")
# Mounts that a runtime makes by itself, or that hold no data.
_NOT_DATA = re.compile(r"/(etc|dev|proc|sys|run|usr|lib\w*|s?bin|var/run|tmp/\.X11-unix)(/|$)")
_IN_MEMORY = (
    "tmpfs",
    "ramfs",
    "devtmpfs",
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "mqueue",
    "devpts",
    "hugetlbfs",
)
# Forward signals and reap orphans; `pause` does so where a pod shares its process namespace.
_INITS = ("tini", "docker-init", "dumb-init", "catatonit", "systemd", "s6-svscan", "runit", "pause", "init")
_VIDEO_PACKAGES = re.compile(r"torchcodec|nvidia-dali-.*|pynvvideocodec|nvidia-nvimgcodec-.*")
# Interfaces with no other end, which reach nothing outside.
_NOWHERE = re.compile(r"(lo|dummy\d*|ifb\d*|bonding_masters)$")
# The character devices /dev/nvidia0 and following.
_NVIDIA_MAJOR = "195:"


def find_container(system: System) -> str | None:
    """What kind of container this is; None outside of one.

    A virtual machine made from a container's image has the image's marker files and none of the mounts.
    """
    points = {mount.point for mount in system.mounts}
    environment = system.environment
    docker, podman = system.exists(".dockerenv"), system.exists("run/.containerenv")
    marked = docker or podman or "container" in environment or "APPTAINER_CONTAINER" in environment
    backed = system.mount_of("/").source.startswith("/dev/")
    if not ({"/etc/hosts", "/etc/hostname"} & points or (marked and not backed)):
        return None
    if "KUBERNETES_SERVICE_HOST" in environment or any("secrets/kubernetes.io" in point for point in points):
        return "Kubernetes"
    return "Docker" if docker else "Podman" if podman else "a container"


def _outside(system: System, kubernetes: bool = False) -> Outcome | None:
    kind = find_container(system)
    if kind is None:
        return not_applicable("this is no container")
    if kubernetes and kind != "Kubernetes":
        return not_applicable("this is no Kubernetes pod")
    return None


def _status(system: System) -> Mapping[str, str]:
    rows = (line.partition(":") for line in system.lines("proc/self/status"))
    return {name: value.strip() for name, _, value in rows}


def has_capability(system: System, bit: int, which: str = "CapBnd") -> bool:
    """Whether a capability is in one of this process's sets; the bounding one is the container's own."""
    return bool(int(_field(_status(system), which), 16) >> bit & 1)


def is_filtered(system: System) -> bool:
    """Whether a seccomp profile decides which system calls are allowed."""
    return _field(_status(system), "Seccomp") == _SECCOMP_FILTER


def _field(status: Mapping[str, str], name: str) -> str:
    if name not in status:
        raise Unreadable(Unknown("/proc/self/status", f"no line {name}"))
    return status[name]


def _shm_size(system: System) -> int:
    mount = system.mount_of("/dev/shm")
    if mount.point != "/dev/shm":
        raise Unreadable(Unknown("/dev/shm", "nothing is mounted there"))
    for option in mount.options:
        # The kernel writes kibibytes; an unset size is half of the memory.
        found = re.fullmatch(r"size=(\d+)k", option)
        if found:
            return int(found[1]) * 1024
    return system.memory["MemTotal"] // 2


def _size(number: int) -> str:
    return f"{number / _GIB:,.1f} GiB" if number >= _GIB else f"{number / _MIB:,.0f} MiB"


def _optional(system: System, path: str) -> str:
    """A file's text; empty where it is not there or closed."""
    try:
        return system.text(path)
    except Unreadable:
        return ""


@probe("containers.shm-size")
def shm_size(system: System) -> Outcome:
    kind = find_container(system)
    if kind in (None, "Kubernetes"):
        return not_applicable("a pod's volume decides" if kind else "this is no container")
    size = _shm_size(system)
    wanted = f"at least {_size(_SHM_LEAST)}"
    if size >= _SHM_LEAST:
        return passes(_size(size), wanted)
    fix = ["docker run --shm-size=16g ...", "docker run --ipc=host ...   # the host's /dev/shm"]
    return (fails if size <= _SHM_DEFAULT else warns)(_size(size), wanted, fix)


@probe("containers.shm-volume")
def shm_volume(system: System) -> Outcome:
    outside = _outside(system, kubernetes=True)
    if outside:
        return outside
    size = _shm_size(system)
    try:
        limit = _memory_limit(system)
        bound = _size(limit) if limit else "none"
    except Unreadable as error:
        limit, bound = None, f"unknown ({error})"
    wanted = f"more than {_size(_SHM_DEFAULT)}, and less than the container's memory limit"
    if size <= _SHM_DEFAULT:
        return fails(f"{_size(size)}, the runtime's default", wanted)
    if limit is not None and size >= limit:
        return warns(f"{_size(size)} with a memory limit of {_size(limit)}", wanted)
    return passes(f"{_size(size)}, memory limit: {bound}", wanted)


def _memory_limit(system: System) -> int | None:
    group = system.cgroup("memory")
    text = system.cgroup_file("memory", "memory.max" if group.version == 2 else "memory.limit_in_bytes")
    # Version 1 writes the largest multiple of a page where there is no limit.
    return int(text) if text.isdigit() and int(text) < 1 << 60 else None


@probe("containers.ulimits")
def ulimits(system: System) -> Outcome:
    outside = _outside(system)
    if outside:
        return outside
    if not system.names("dev/infiniband"):
        return not_applicable("no RDMA device in this container")
    # The hard limit comes from the daemon; a soft one below it is the user's own (os.memlock).
    row = re.search(r"^Max locked memory +\S+ +(\S+)", system.text("proc/self/limits"), re.MULTILINE)
    if not row:
        return unknown("/proc/self/limits: no line Max locked memory")
    wanted = "unlimited locked memory, or the capability IPC_LOCK"
    if row[1] == "unlimited":
        return passes("unlimited", wanted)
    # The kernel does not hold its owner to the limit.
    if has_capability(system, _IPC_LOCK, "CapEff"):
        return passes("limited, but this process has the capability IPC_LOCK", wanted)
    found = f"at most {int(row[1]) / _MIB:,.2f} MiB of locked memory, with RDMA devices present"
    return fails(found, wanted, ["docker run --ulimit memlock=-1 --ulimit stack=67108864 ..."])


@probe("containers.rdma-devices")
def rdma_devices(system: System) -> Outcome:
    outside = _outside(system)
    if outside:
        return outside
    cards = system.names("sys/class/infiniband")
    inside = [name for name in system.names("dev/infiniband") if name.startswith("uverbs")]
    if not cards:
        return not_applicable("the host shows no RDMA card")
    wanted = "a /dev/infiniband/uverbs device for each card"
    if len(inside) >= len(cards):
        return passes(f"{len(inside)} devices for {len(cards)} cards", wanted)
    found = f"{len(inside)} devices for {len(cards)} cards ({few(cards)})"
    fix = ["docker run --network host --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1 ..."]
    return (warns if inside else fails)(found, wanted, fix)


@probe("containers.host-network")
def host_network(system: System) -> Outcome:
    outside = _outside(system)
    if outside:
        return outside
    wanted = "a card of the host, for jobs over several nodes and busy servers"
    pairs = []
    for name in system.names("sys/class/net"):
        if _NOWHERE.match(name):
            continue
        # The other end of a virtual pair lies in another namespace and has another number.
        try:
            here = system.number(f"sys/class/net/{name}/ifindex")
            other = system.number(f"sys/class/net/{name}/iflink")
        except Unreadable:
            continue
        if here == other:
            return passes(f"{name} is no virtual pair", wanted)
        pairs.append(name)
    if not pairs:
        return unknown("no network interface but the loopback")
    return warns(f"only virtual interfaces ({few(pairs)}): a bridge translates each packet", wanted)


@probe("containers.gpu-loss-on-reload")
def gpu_loss_on_reload(system: System) -> Outcome:
    if find_container(system):
        return not_applicable("only the host can tell")
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    docker = _optional(system, "etc/docker/daemon.json")
    containerd = _optional(system, "etc/containerd/config.toml")
    links = [name for name in system.names("dev/char") if name.startswith(_NVIDIA_MAJOR)]
    if not docker and not containerd:
        return not_applicable("neither Docker nor containerd is configured here")
    wanted = "links under /dev/char for the GPUs, or a runtime that manages cgroups without systemd"
    if len(links) >= len(gpus):
        return passes(f"{len(links)} links {_NVIDIA_MAJOR}* under /dev/char for {len(gpus)} GPUs", wanted)
    if "native.cgroupdriver=cgroupfs" in docker and not containerd:
        return passes("Docker manages cgroups by itself (cgroupfs)", wanted)
    found = f"{len(links)} links {_NVIDIA_MAJOR}* under /dev/char for {len(gpus)} GPUs"
    return warns(found, wanted, ["sudo nvidia-ctk system create-dev-char-symlinks --create-all"])


@probe("containers.cdi-spec")
def cdi_spec(system: System) -> Outcome:
    folders = ("etc/cdi", "run/cdi")
    specs = [f"{folder}/{name}" for folder in folders for name in system.names(folder) if "nvidia" in name]
    if not specs:
        return not_applicable("no CDI specification of NVIDIA's here")
    loaded = system.text("sys/module/nvidia/version")
    wanted = f"one specification, made for driver {loaded}"
    made_for = {}
    for spec in specs:
        library = re.search(r"libcuda\.so\.(\d+(?:\.\d+)+)", system.text(spec))
        if library:
            made_for[spec] = library[1]
    old = [f"/{spec} is for driver {version}" for spec, version in made_for.items() if version != loaded]
    if old:
        fix = ["sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml   # toolkit before 1.18"]
        if any(spec.startswith("run/") and made_for[spec] != loaded for spec in made_for):
            fix = ["sudo systemctl restart nvidia-cdi-refresh.service"]
        return fails(few(old), wanted, fix)
    if not made_for:
        return unknown(f"/{specs[0]} names no libcuda.so with a version")
    if {spec.partition("/")[0] for spec in made_for} == {"etc", "run"}:
        kept = next(spec for spec in made_for if spec.startswith("etc/"))
        return warns(f"two: {few('/' + spec for spec in made_for)}", wanted, [f"sudo rm /{kept}"])
    return passes(f"/{next(iter(made_for))} for driver {loaded}", wanted)


@probe("containers.runtime-config")
def runtime_config(system: System) -> Outcome:
    inside = find_container(system)
    try:
        gpus = find_gpus(system)
    except Unreadable:
        if not inside:
            raise
        gpus = not_applicable("NVML does not answer")
    if inside:
        wanted = "the host's GPUs visible in the container"
        if not isinstance(gpus, Outcome):
            return passes(f"{len(gpus)} GPUs visible in {inside}", wanted)
        if not system.exists("sys/module/nvidia/version"):
            return not_applicable("the host has no NVIDIA driver")
        fix = [
            "docker run --gpus all ...",
            "sudo nvidia-ctk runtime configure --runtime=docker   # on the host",
        ]
        return fails(f"the host has the driver, and {inside} sees no GPU", wanted, fix)
    if isinstance(gpus, Outcome):
        return gpus
    installed = system.exists("usr/lib/systemd/system/docker.service")
    text = _optional(system, "etc/docker/daemon.json")
    if not installed and not text:
        return not_applicable("Docker is not installed here")
    wanted = "the runtime nvidia or CDI in /etc/docker/daemon.json"
    try:
        settings = json.loads(text or "{}")
    except ValueError as error:
        return unknown(f"/etc/docker/daemon.json: no JSON: {error}")
    if "nvidia" in settings.get("runtimes", {}):
        return passes("the runtime nvidia is registered", wanted)
    if settings.get("features", {}).get("cdi"):
        return passes("CDI is on", wanted)
    fix = ["sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"]
    return warns("neither the runtime nvidia nor CDI is set", wanted, fix)


@probe("containers.driver-capabilities")
def driver_capabilities(system: System) -> Outcome:
    outside = _outside(system)
    if outside:
        return outside
    environment = system.environment
    # With CDI the toolkit sets the second one to void and mounts all libraries.
    asked = environment.get("NVIDIA_DRIVER_CAPABILITIES")
    devices = environment.get("NVIDIA_VISIBLE_DEVICES")
    if devices in (None, "", "void", "none"):
        return not_applicable("the GPUs here, if any, do not come by NVIDIA's variables")
    has = set((asked or "compute,utility").replace(" ", "").split(","))
    decoders = [name for name in system.packages if _VIDEO_PACKAGES.fullmatch(name)]
    needed = {"compute", "utility"} | ({"video"} if decoders else set())
    wanted = f"all, or {', '.join(sorted(needed))}"
    shown = asked or "unset (compute,utility)"
    missing = sorted(needed - has)
    if "all" in has or not missing:
        return passes(shown, wanted)
    names = ",".join(sorted(has | needed))
    fix = [f"docker run -e NVIDIA_DRIVER_CAPABILITIES={names} --gpus all ..."]
    why = f" (installed: {few(decoders)})" if missing == ["video"] else ""
    found = f"{shown}: without {', '.join(missing)}{why}"
    return (fails if "compute" in missing else warns)(found, wanted, fix)


def _numa_nodes(system: System) -> int:
    return len(parse_cpu_list(system.text("sys/devices/system/node/online")))


@probe("containers.topology-manager")
def topology_manager(system: System) -> Outcome:
    outside = _outside(system, kubernetes=True)
    if outside:
        return outside
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if _numa_nodes(system) < 2:
        return not_applicable("one NUMA node")
    mine = set(parse_cpu_list(_field(_status(system), "Cpus_allowed_list")))
    far = []
    for gpu in gpus:
        domain, _, rest = str(gpu.get("bus_id", "0:?")).partition(":")
        near = parse_cpu_list(system.text(f"sys/bus/pci/devices/{int(domain, 16):04x}:{rest}/local_cpulist"))
        if not mine & set(near):
            far.append(f"GPU {gpu['index']}: none of the pod's {len(mine)} CPUs is on its NUMA node")
    wanted = "CPUs of the pod on the NUMA node of each of its GPUs"
    if far:
        fix = ["KubeletConfiguration: topologyManagerPolicy: single-numa-node and cpuManagerPolicy: static"]
        return warns(few(far), wanted, fix)
    return passes(f"{len(mine)} CPUs, some near each of {len(gpus)} GPUs", wanted)


@probe("containers.cpu-manager")
def cpu_manager(system: System) -> Outcome:
    outside = _outside(system, kubernetes=True)
    if outside:
        return outside
    mine = set(parse_cpu_list(_field(_status(system), "Cpus_allowed_list")))
    node = set(parse_cpu_list(system.text("sys/devices/system/cpu/online")))
    wanted = "CPUs of its own"
    if mine >= node:
        return warns(f"all {len(node)} CPUs of the node, shared with every other pod", wanted)
    return passes(f"{len(mine)} of the node's {len(node)} CPUs", wanted)


@probe("containers.cpu-throttling")
def cpu_throttling(system: System) -> Outcome:
    outside = _outside(system)
    if outside:
        return outside
    counts = parse_fields(system.cgroup_file("cpu", "cpu.stat"))
    if "nr_periods" not in counts:
        return unknown("cpu.stat of this control group counts no periods")
    periods, stopped = counts["nr_periods"], counts.get("nr_throttled", 0)
    wanted = f"stopped in at most {_THROTTLED_SHARE:.0%} of the scheduling periods"
    if not periods:
        return passes("no CPU limit has been at work", wanted)
    # Version 1 counts nanoseconds, version 2 microseconds.
    seconds = counts.get("throttled_usec", 0) / 1e6 or counts.get("throttled_time", 0) / 1e9
    found = (
        f"stopped in {stopped:,} of {periods:,} periods ({stopped / periods:.1%}), {seconds:,.1f} s in all"
    )
    return passes(found, wanted) if stopped <= _THROTTLED_SHARE * periods else warns(found, wanted)


@probe("containers.hugepages")
def hugepages(system: System) -> Outcome:
    outside = _outside(system, kubernetes=True)
    if outside:
        return outside
    mounts = [mount for mount in system.mounts if mount.filesystem == "hugetlbfs"]
    if not mounts:
        return not_applicable("this pod asks for no huge pages")
    wanted = "free pages of the size that is mounted"
    empty: list[str] = []
    full: list[str] = []
    for mount in mounts:
        size = next((o for o in mount.options if re.fullmatch(r"pagesize=\d+[KMG]", o)), "pagesize=2M")
        number, unit = int(size[9:-1]), size[-1]
        kib = number * {"K": 1, "M": 1 << 10, "G": 1 << 20}[unit]
        free = system.number(f"sys/kernel/mm/hugepages/hugepages-{kib}kB/free_hugepages")
        (full if free else empty).append(f"{mount.point}: {free:,} pages of {number} {unit}iB free")
    return warns(few(empty), wanted) if empty else passes(few(full), wanted)


@probe("containers.writable-layer")
def writable_layer(system: System) -> Outcome:
    outside = _outside(system)
    if outside:
        return outside
    root = system.mount_of("/")
    if root.filesystem not in _LAYERED:
        return not_applicable(f"the root is {root.filesystem}, no layer over an image")
    volumes = [
        mount
        for mount in system.mounts
        if mount.point != "/"
        and not _NOT_DATA.match(mount.point)
        and mount.filesystem not in (*_LAYERED, *_IN_MEMORY)
        and "ro" not in mount.options
    ]
    wanted = "a writable volume for checkpoints and data"
    if volumes:
        return passes(few(f"{mount.point} ({mount.filesystem})" for mount in volumes), wanted)
    fix = ["docker run -v /mnt/nvme/run1:/outputs ... --output-dir /outputs"]
    return warns(
        f"no writable volume: all that is written goes into the {root.filesystem} layer", wanted, fix
    )


@probe("containers.init")
def init(system: System) -> Outcome:
    outside = _outside(system)
    if outside:
        return outside
    name = system.text("proc/1/comm")
    wanted = "an init process as PID 1"
    if name in _INITS:
        return passes(name, wanted)
    return warns(f"{name} is PID 1", wanted, ["docker run --init ..."])


@probe("containers.numa-syscalls")
def numa_syscalls(system: System) -> Outcome:
    outside = _outside(system)
    if outside:
        return outside
    if _numa_nodes(system) < 2:
        return not_applicable("one NUMA node")
    wanted = "no seccomp profile, or the capability SYS_NICE"
    if not is_filtered(system):
        return passes("no seccomp profile", wanted)
    if has_capability(system, _SYS_NICE):
        return passes("the container has SYS_NICE", wanted)
    found = "a seccomp profile without SYS_NICE: binding of memory is refused"
    return warns(found, wanted, ["docker run --cap-add SYS_NICE ..."])


@probe("containers.profiling")
def profiling(system: System) -> Outcome:
    outside = _outside(system)
    if outside:
        return outside
    wanted = "no seccomp profile, or the capabilities PERFMON and SYS_PTRACE, where one profiles"
    if not is_filtered(system):
        return passes("no seccomp profile", wanted)
    samples = has_capability(system, _PERFMON) or has_capability(system, _SYS_ADMIN)
    missing = [] if samples else ["PERFMON"]
    # Docker's profile lets ptrace through since 19.03; with Yama's scope 1 a foreign process still needs it.
    scope = _optional(system, "proc/sys/kernel/yama/ptrace_scope") or "0"
    missing += [] if scope == "0" or has_capability(system, _SYS_PTRACE) else ["SYS_PTRACE"]
    if not missing:
        return passes("the container has the capabilities", wanted)
    options = " ".join(f"--cap-add={name}" for name in missing)
    return warns(f"a seccomp profile without {' and '.join(missing)}", wanted, [f"docker run {options} ..."])
