"""Probes of the NVIDIA driver, its modules and services, and the CUDA libraries on top of it."""

from __future__ import annotations

import errno
import os
import re

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.common_facts import lost_because, lying_on
from trackside.machine.doctor.probes.containers import find_container, has_capability, is_filtered
from trackside.machine.doctor.probes.gpu_state import Gpu, few, find_gpus
from trackside.machine.doctor.system import System, Unreadable
from trackside.machine.system_files import Unknown

__all__ = ["find_nccl", "library_folders", "version"]

# The oldest driver branch that runs a CUDA major version at all.
_FLOORS = {11: 450, 12: 525, 13: 580}
# The first architecture whose GPUs have a system processor and the open modules: Turing.
_TURING = (7, 5)
_HOPPER = (9, 0)
# CUDA's own default for the JIT cache on servers; a smaller one evicts what PyTorch's libraries compile.
_CACHE_BYTES = 1 << 30
# NCCL takes shared memory from cuMem from the first on, and falls back by itself only from the second on.
_CUMEM_HOST, _CUMEM_FALLBACK = (2, 24), (2, 26, 5)
# The first kernel with DMA-BUF for RDMA devices.
_DMA_BUF_KERNEL = (5, 12)
# Modules that let a network card reach GPU memory: NVIDIA's, its predecessor, and that of Amazon's EFA.
_PEER_MODULES = frozenset({"nvidia_peermem", "nv_peer_mem", "efa_nv_peermem"})
_SYS_ADMIN, _SYS_NICE = 21, 23
# The kernel cuts a process's name after 15 characters.
_FABRIC_MANAGER = "nv-fabricmanager"[:15]
_BROUGHT = re.compile(r"lib(cudnn\w*|cublas(Lt)?|nccl)\.so(\.|$)")


def version(text: str) -> tuple[int, ...]:
    """The leading numbers: `535.129.03` is (535, 129, 3)."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def library_folders(system: System) -> list[str]:
    """Absolute folders of LD_LIBRARY_PATH, in order."""
    entries = system.environment.get("LD_LIBRARY_PATH", "").split(":")
    return [entry.rstrip("/") for entry in entries if entry.startswith("/") and entry != "/"]


def find_nccl(system: System) -> dict[str, str]:
    """NCCL packages of this environment and their versions."""
    return {n: v for n, v in system.packages.items() if re.fullmatch(r"nvidia-nccl-cu\d+", n)}


def _driver(gpus: tuple[Gpu, ...]) -> str:
    if not gpus[0].get("driver"):
        raise Unreadable(Unknown("driver version", "NVML does not tell"))
    return str(gpus[0]["driver"])


def _torch_cuda(system: System) -> tuple[int, ...] | Outcome:
    """The CUDA version of the installed PyTorch."""
    torch = system.packages.get("torch")
    if torch is None:
        return not_applicable("PyTorch is not installed beside Trackside")
    local = torch.partition("+")[2]
    tag = re.match(r"cu(\d+)(\d)", local)
    if tag:
        return int(tag[1]), int(tag[2])
    if local.startswith(("cpu", "rocm", "xpu")):
        return not_applicable(f"PyTorch {torch} is no CUDA build")
    for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11"):
        if name in system.packages:
            return version(system.packages[name])[:2]
    return unknown(f"PyTorch {torch} names no CUDA version")


@probe("driver.driver-floor")
def driver_floor(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    cuda = _torch_cuda(system)
    if isinstance(cuda, Outcome):
        return cuda
    driver = _driver(gpus)
    floor = _FLOORS.get(cuda[0])
    if floor is None:
        return unknown(f"no driver branch is known for CUDA {cuda[0]}")
    found = f"driver {driver} for CUDA {'.'.join(map(str, cuda))}"
    wanted = f"{floor} or newer for CUDA {cuda[0]}"
    if version(driver)[:1] >= (floor,):
        return passes(found, wanted)
    if any("compat" in folder.split("/") for folder in library_folders(system)):
        return unknown(f"{found}, with a forward-compatibility library in LD_LIBRARY_PATH")
    older = max((major for major, least in _FLOORS.items() if (least,) <= version(driver)[:1]), default=None)
    fix = ["sudo apt-get install nvidia-open   # NVIDIA's repository; then reboot"]
    if older:
        fix.append(f"install the PyTorch build for CUDA {older}")
    return fails(found, wanted, fix)


@probe("driver.forward-compat")
def forward_compat(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    libraries = [
        (folder, name.removeprefix("libcuda.so."))
        for folder in library_folders(system)
        if "compat" in folder.split("/")
        for name in system.names(folder.lstrip("/"))
        if re.fullmatch(r"libcuda\.so\.\d+\.[\d.]+", name)
    ]
    driver = _driver(gpus)
    wanted = "none, or one that is newer than the driver"
    if not libraries:
        return passes("none in LD_LIBRARY_PATH", wanted)
    folder, library = libraries[0]
    found = f"{folder} has libcuda {library}, the driver is {driver}"
    if version(library) <= version(driver):
        return warns(found, wanted, [f"take {folder} out of LD_LIBRARY_PATH"])
    if any("GeForce" in str(gpu.get("name")) for gpu in gpus):
        return fails(f"{found}, on a GeForce card, which it does not support", wanted)
    return passes(found, wanted)


@probe("driver.jit-cache")
def jit_cache(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    environment = system.environment
    faults, fix = [], []
    for name in ("CUDA_CACHE_DISABLE", "CUDA_FORCE_PTX_JIT"):
        if environment.get(name, "0") not in ("", "0"):
            faults.append(f"{name}={environment[name]}")
            fix.append(f"unset {name}")
    size = environment.get("CUDA_CACHE_MAXSIZE", "")
    if size.isdigit() and int(size) < _CACHE_BYTES:
        faults.append(f"CUDA_CACHE_MAXSIZE={size}")
        fix.append("export CUDA_CACHE_MAXSIZE=4294967296")
    home = environment.get("HOME")
    folder = environment.get("CUDA_CACHE_PATH") or (f"{home}/.nv/ComputeCache" if home else "")
    if folder.startswith("/"):
        mount = lying_on(system, folder)
        lost = f"{mount.point}, read-only" if "ro" in mount.options else lost_because(mount)
        if lost:
            faults.append(f"{folder} lies on {lost}")
            fix.append("export CUDA_CACHE_PATH=/local/cache/nv   # a folder that lasts")
    wanted = f"on, at least {_CACHE_BYTES >> 30} GiB, in a folder that lasts"
    if faults:
        return warns(few(faults), wanted, fix)
    return passes(f"on, in {folder or 'its default folder'}", wanted)


@probe("driver.lazy-loading")
def lazy_loading(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    mode = system.environment.get("CUDA_MODULE_LOADING", "")
    wanted = "unset or LAZY"
    if mode.upper() == "EAGER":
        return warns(f"CUDA_MODULE_LOADING={mode}", wanted, ["unset CUDA_MODULE_LOADING"])
    return passes(mode or "unset", wanted)


@probe("driver.device-order")
def device_order(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    environment = system.environment
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    entries = [entry.strip() for entry in (chosen or "").split(",")]
    wanted = "one numbering for CUDA and nvidia-smi, and no number that does not exist"
    if chosen is not None and not entries[0].startswith("MIG"):
        uuids = [str(gpu.get("uuid", "")) for gpu in gpus]
        for place, entry in enumerate(entries):
            known = entry.isdigit() and int(entry) < len(gpus)
            named = entry.startswith("GPU-") and any(uuid.startswith(entry) for uuid in uuids)
            if not known and not named:
                left = f"CUDA sees {place} of {len(gpus)} GPUs"
                found = f"CUDA_VISIBLE_DEVICES={chosen}: {entry or 'nothing'!r} is no GPU here, so {left}"
                return warns(found, wanted, ["nvidia-smi -L", "unset CUDA_VISIBLE_DEVICES"])
    models = sorted({str(gpu.get("name", "?")) for gpu in gpus})
    if len(gpus) < 2:
        return not_applicable("one GPU")
    order = environment.get("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    if len(models) > 1 and order != "PCI_BUS_ID" and not entries[0].startswith(("GPU-", "MIG-")):
        found = f"{len(models)} models ({few(models)}), CUDA numbers them {order}"
        return warns(found, wanted, ["export CUDA_DEVICE_ORDER=PCI_BUS_ID"])
    return passes(
        f"{len(gpus)} × {models[0]}" if len(models) == 1 else f"{len(models)} models, {order}", wanted
    )


def _fabric_manager_runs(system: System) -> bool | Outcome:
    """By its process number, or where it writes none by its control group."""
    groups = [f"sys/fs/cgroup/{top}system.slice" for top in ("", "systemd/")]
    if any(system.names(f"{group}/nvidia-fabricmanager.service") for group in groups):
        return True
    try:
        process = system.number("run/nvidia-fabricmanager/nv-fabricmanager.pid")
        return system.text(f"proc/{process}/comm") == _FABRIC_MANAGER
    except Unreadable as error:
        if find_container(system):
            return unknown(f"a container does not see the host's services ({error})")
        if error.unknown.why != os.strerror(errno.ENOENT):
            raise
        return False


@probe("driver.fabric-manager")
def fabric_manager(system: System) -> Outcome:
    switches = system.names("proc/driver/nvidia-nvswitch/devices")
    if not switches:
        return not_applicable("no NVSwitch is visible here")
    found = _fabric_manager_runs(system)
    wanted = "running"
    gpus = find_gpus(system)
    outside = [
        f"GPU {gpu['index']}: {gpu['fabric']}"
        for gpu in (() if isinstance(gpus, Outcome) else gpus)
        if gpu.get("fabric") in ("not started", "in progress")
    ]
    if outside:
        return fails(
            f"GPUs have not joined the NVLink fabric: {few(outside)}",
            "completed on every GPU",
            ["sudo systemctl restart nvidia-fabricmanager", "journalctl -u nvidia-fabricmanager"],
        )
    if isinstance(found, Outcome):
        return found
    if found:
        return passes(f"running, {len(switches)} NVSwitches", wanted)
    return fails(
        f"not running, {len(switches)} NVSwitches",
        wanted,
        ["sudo systemctl enable --now nvidia-fabricmanager", "journalctl -u nvidia-fabricmanager"],
    )


def _capability(gpu: Gpu) -> tuple[int, ...]:
    return version(str(gpu.get("compute_capability", "")))


@probe("driver.open-modules")
def open_modules(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if any(() < _capability(gpu) < _TURING for gpu in gpus):
        return not_applicable("a GPU here is older than Turing")
    text = system.text("proc/driver/nvidia/version")
    wanted = "the open kernel modules"
    if "Open Kernel Module" in text:
        return passes("open", wanted)
    if "Kernel Module" not in text:
        return unknown("/proc/driver/nvidia/version names no kernel module")
    return warns("proprietary", wanted)


@probe("driver.gsp-firmware")
def gsp_firmware(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if all(() < _capability(gpu) < _TURING for gpu in gpus):
        return not_applicable("GPUs before Turing have no system processor")
    try:
        text = system.text("proc/driver/nvidia/params")
    except Unreadable:
        text = ""
    wanted = "on"
    if re.search(r"^EnableGpuFirmware: 0$", text, re.MULTILINE):
        fix = ["grep -rl NVreg_EnableGpuFirmware /etc/modprobe.d   # remove the line, then:"]
        fix.append("sudo update-initramfs -u && sudo reboot")
        return warns("off by the module option NVreg_EnableGpuFirmware=0", wanted, fix)
    versions = [gpu.get("gsp_firmware") for gpu in gpus]
    if all(versions):
        return passes(f"on, version {versions[0]}", wanted)
    silent = [gpu for gpu in gpus if not gpu.get("gsp_firmware")]
    why = silent[0].get("unknown", {}).get("gsp_firmware", "the driver does not tell")
    return unknown(f"firmware version of GPU {silent[0]['index']}: {why}")


@probe("driver.gpudirect-rdma")
def gpudirect_rdma(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    cards = system.names("sys/class/infiniband")
    if not cards:
        return not_applicable("no InfiniBand or RoCE card here")
    peer = sorted(_PEER_MODULES & system.modules)
    is_open = "Open Kernel Module" in system.text("proc/driver/nvidia/version")
    kernel = system.text("proc/sys/kernel/osrelease")
    wanted = "the open modules with Linux 5.12 or newer (DMA-BUF), or nvidia-peermem loaded"
    if is_open and version(kernel) >= _DMA_BUF_KERNEL:
        return passes(f"open modules on Linux {kernel} (DMA-BUF)", wanted)
    if peer:
        return passes(f"{', '.join(peer)} is loaded", wanted)
    modules = "open" if is_open else "proprietary"
    fix = ["sudo modprobe nvidia-peermem"]
    fix.append("echo nvidia-peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf")
    return fails(f"{modules} modules on Linux {kernel}, nvidia-peermem is not loaded", wanted, fix)


@probe("driver.gpudirect-storage")
def gpudirect_storage(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if "nvidia_fs" not in system.modules:
        return not_applicable("nvidia-fs is not loaded: GPUDirect Storage is not set up here")
    # An ordered journal is ext4's default, which the kernel does not write out.
    bad = [
        (mount, mode)
        for mount in system.mounts
        for mode in ("writeback", "journal")
        if mount.filesystem == "ext4" and f"data={mode}" in mount.options
    ]
    wanted = "nvidia-fs loaded, ext4 mounted with data=ordered"
    if bad:
        fix = [f"mount -o data=ordered {mount.source} {mount.point}   # after umount" for mount, _ in bad[:3]]
        return warns(few(f"{mount.point} has data={mode}" for mount, mode in bad), wanted, fix)
    return passes("nvidia-fs is loaded, no ext4 with another journal mode", wanted)


@probe("driver.profiling-permission")
def profiling_permission(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    row = re.search(r"^RmProfilingAdminOnly: (\d+)", system.text("proc/driver/nvidia/params"), re.MULTILINE)
    if not row:
        return unknown("/proc/driver/nvidia/params: no line RmProfilingAdminOnly")
    wanted = "counters open to everybody on development nodes, or the capability SYS_ADMIN"
    if row[1] == "0":
        return passes("open to everybody", wanted)
    if has_capability(system, _SYS_ADMIN, "CapEff"):
        return passes("for administrators only, and this process is one (SYS_ADMIN)", wanted)
    return warns("for administrators only (RmProfilingAdminOnly: 1)", wanted)


@probe("driver.dcgm-pause")
def dcgm_pause(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if all(_capability(gpu) >= _HOPPER for gpu in gpus):
        return not_applicable("from Hopper on DCGM reads its metrics through another interface")
    # A running service has a control group; what runs in pods has not, and is not seen here.
    folders = [f"sys/fs/cgroup/{top}system.slice" for top in ("", "systemd/")]
    services = [name for folder in folders for name in system.names(folder) if name.endswith(".service")]
    if not services:
        return unknown("no control groups of system services are visible here")
    wanted = "no DCGM service while a profiler runs"
    running = [name for name in services if re.search(r"dcgm|hostengine", name)]
    if running:
        fix = ["dcgmi profile --pause   # before the profile", "dcgmi profile --resume   # after it"]
        return warns(f"{', '.join(running)} is running", wanted, fix)
    if any(system.names(f"sys/fs/cgroup/{top}kubepods.slice") for top in ("", "systemd/")):
        return unknown("no DCGM service, but pods run here, and one of them may be its exporter")
    return passes(f"none among {len(services)} services", wanted)


@probe("driver.library-shadowing")
def library_shadowing(system: System) -> Outcome:
    if not any(re.match(r"nvidia-(cudnn|cublas|nccl)", name) for name in system.packages):
        return not_applicable("no CUDA libraries among the Python packages here")
    found = {}
    for folder in library_folders(system):
        if "site-packages" in folder or "dist-packages" in folder:
            continue
        names = [name for name in system.names(folder.lstrip("/")) if _BROUGHT.match(name)]
        if names:
            found[folder] = names
    wanted = "no cuDNN, cuBLAS or NCCL in LD_LIBRARY_PATH"
    if not found:
        return passes("none in LD_LIBRARY_PATH", wanted)
    shown = few(f"{folder} has {few(names, 2)}" for folder, names in found.items())
    return warns(shown, wanted, [f"take {folder} out of LD_LIBRARY_PATH" for folder in list(found)[:3]])


@probe("driver.nccl-version")
def nccl_version(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if len(gpus) < 2:
        return not_applicable("one GPU")
    packages = find_nccl(system)
    if not packages:
        return not_applicable("no NCCL package is installed beside Trackside")
    named = ", ".join(f"{name} {number}" for name, number in sorted(packages.items()))
    wanted = "one NCCL, and none of 2.24 to 2.26.4 where a container refuses NUMA calls"
    if len(packages) > 1:
        return warns(
            f"several: {named}", wanted, ["python -m pip uninstall the one that torch does not need"]
        )
    number = version(next(iter(packages.values())))
    risky = _CUMEM_HOST <= number < _CUMEM_FALLBACK
    if risky and system.environment.get("NCCL_CUMEM_HOST_ENABLE") != "0":
        confined = find_container(system) and is_filtered(system)
        if confined and not has_capability(system, _SYS_NICE):
            package = next(iter(packages))
            fix = [f"python -m pip install --upgrade --no-deps {package}", "export NCCL_CUMEM_HOST_ENABLE=0"]
            return warns(f"{named} in a container without SYS_NICE", wanted, fix)
    return passes(named, wanted)


@probe("driver.version-lock")
def version_lock(system: System) -> Outcome:
    wanted = "the loaded module and the libraries of one version"
    try:
        gpus = find_gpus(system)
    except Unreadable as error:
        if "mismatch" not in error.unknown.why:
            raise
        return fails(f"module and libraries differ ({error.unknown.why})", wanted, ["sudo reboot"])
    if isinstance(gpus, Outcome):
        return gpus
    # NVML does not start where the two differ.
    return passes(f"both {_driver(gpus)}", wanted)
