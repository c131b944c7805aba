"""Probes of storage: network mounts, local drives, and where caches lie."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.common_facts import (
    gibibytes,
    hub_folder,
    lost_because,
    lying_on,
)
from trackside.machine.doctor.probes.containers import find_container
from trackside.machine.doctor.probes.gpu_state import few
from trackside.machine.doctor.system import Room, System, Unreadable

_SECTOR = 512
"""Bytes: the unit of /sys/block/*/size, whatever the drive's own is."""
# KiB: one read of NFS at its largest size. Less ahead than that, and the link idles between reads.
_NFS_READ_AHEAD = 1_024
# KiB that the kernel used before Linux 5.4, 15 reads of 1 MiB each.
_NFS_READ_AHEAD_SET = 15_360
# KiB, eight times the kernel's default: a page fault in a mapped file reads that much around one sample.
_DRIVE_READ_AHEAD = 1_024
# File systems over several drives: at most one of them is named as the source of the mount.
_POOLS = frozenset({"zfs", "btrfs", "bcachefs"})
_HUB_PACKAGES = ("huggingface-hub", "transformers", "datasets", "diffusers", "vllm", "sglang")
# The item's own bound, 80 % in use; below a fiftieth the next checkpoint or package is likely to fail.
_LEAST_FREE, _NEARLY_NONE = 0.2, 0.02
_FSTRIM = (
    "etc/systemd/system/timers.target.wants/fstrim.timer",
    "usr/lib/systemd/system/timers.target.wants/fstrim.timer",
)


@dataclass(frozen=True, slots=True)
class _NfsMount:
    point: str
    source: str
    device: str
    """`major:minor`, under which its read-ahead is kept."""
    options: dict[str, str]


@probe("storage.stage-locally")
def stage_locally(system: System) -> Outcome:
    network = sorted({mount.point for mount in system.mounts if mount.is_network})
    sources = {mount.source.removeprefix("/dev/") for mount in system.mounts}
    drives = _nvme_drives(system)
    unused = {drive: size for drive in drives if (size := _unused_bytes(system, drive, sources))}
    pools = sorted({mount.filesystem for mount in system.mounts} & _POOLS)
    wanted = "local drives in use where data comes over the network"
    if not network:
        return not_applicable("no network file system is mounted")
    if find_container(system):
        return not_applicable("from inside a container it cannot be seen which drives the host uses")
    if not drives:
        return not_applicable(f"{few(network)} on the network, and no local NVMe drive to stage on")
    if unused and pools:
        return unknown(
            f"{few(unused)} may belong to a pool of {few(pools)}, which does not name all its drives"
        )
    if unused:
        amount = gibibytes(sum(unused.values()))
        return warns(f"{few(network)} on the network, and {amount} idle on {few(unused)}", wanted)
    return passes(f"{len(drives)} local NVMe drives in use beside {few(network)}", wanted)


@probe("storage.nfs-read-ahead")
def nfs_read_ahead(system: System) -> Outcome:
    mounts = _nfs_mounts(system)
    ahead = {mount.point: system.number(f"sys/class/bdi/{mount.device}/read_ahead_kb") for mount in mounts}
    wanted = f"at least {_NFS_READ_AHEAD:,} KiB for files that are read front to back"
    if not ahead:
        return not_applicable("no NFS is mounted")
    small = {point: size for point, size in ahead.items() if size < _NFS_READ_AHEAD}
    if small:
        fix = [
            f"echo {_NFS_READ_AHEAD_SET} | sudo tee /sys/class/bdi/{mount.device}/read_ahead_kb"
            f"    # {mount.point}"
            for mount in mounts
            if mount.point in small
        ]
        return warns(few(f"{size:,} KiB on {point}" for point, size in small.items()), wanted, fix[:3])
    return passes(few(f"{size:,} KiB on {point}" for point, size in ahead.items()), wanted)


@probe("storage.nfs-nconnect")
def nfs_nconnect(system: System) -> Outcome:
    # Through a local tunnel (EFS with TLS) and to EFS itself there is one connection whatever is asked for.
    mounts = [
        mount
        for mount in _nfs_mounts(system)
        if mount.options.get("proto") in ("tcp", "tcp6")
        and not re.match(r"127\.|localhost|fs-\w+\.efs\.", mount.source)
    ]
    wanted = "several connections to each server (nconnect)"
    if not mounts:
        return not_applicable("no NFS is mounted over TCP to a server that takes several connections")
    single = [mount.point for mount in mounts if int(mount.options.get("nconnect", "1")) < 2]
    if single:
        return warns(f"one connection for {few(single)}", wanted)
    return passes(
        few(f"{mount.options['nconnect']} connections for {mount.point}" for mount in mounts), wanted
    )


@probe("storage.nvme-scheduler")
def nvme_scheduler(system: System) -> Outcome:
    chosen = {drive: system.chosen(f"sys/block/{drive}/queue/scheduler") for drive in _nvme_drives(system)}
    if not chosen:
        return not_applicable("there is no NVMe drive")
    other = {drive: name for drive, name in chosen.items() if name != "none"}
    if other:
        fix = [f"echo none | sudo tee /sys/block/{drive}/queue/scheduler" for drive in other]
        return warns(few(f"{name} on {drive}" for drive, name in other.items()), "none", fix)
    return passes(f"none on {few(chosen)}", "none")


@probe("storage.trim")
def trim(system: System) -> Outcome:
    drives = [
        name
        for name in system.names("sys/block")
        if re.match(r"nvme\d|sd[a-z]", name) and _is_trimmable(system, name)
    ]
    mounted = [
        mount
        for mount in system.mounts
        if "discard" in mount.options and _drive_of(mount.source.removeprefix("/dev/")) in drives
    ]
    timer = True in [system.exists(path) for path in _FSTRIM]
    systemd = system.exists("run/systemd/system")
    wanted = "fstrim.timer on, and no mount with discard"
    if not drives:
        return not_applicable("no local solid-state drive here takes trims")
    if mounted:
        points = sorted({mount.point for mount in mounted})
        return warns(f"mounted with discard: {few(points)}", wanted)
    if not systemd:
        return unknown("whether the drives are trimmed is set outside: there is no systemd here")
    if not timer:
        return warns(f"fstrim.timer is off; {few(drives)} would take trims", wanted)
    return passes(f"fstrim.timer is on for {few(drives)}", wanted)


@probe("storage.inodes")
def inodes(system: System) -> Outcome:
    rooms: dict[str, Room] = {}
    lost: list[str] = []
    for folder in _written_folders(system):
        try:
            rooms[folder] = system.room(folder)
        except Unreadable as error:
            lost.append(str(error))
    wanted = f"over {_LEAST_FREE:.0%} of space and of inodes free"
    scarce = [f"{folder} has {text}" for folder, room in rooms.items() if (text := _what_is_scarce(room))]
    if scarce:
        full = any(min(_free_shares(room)) < _NEARLY_NONE for room in rooms.values())
        return (fails if full else warns)(few(scarce), wanted)
    if not rooms:
        return unknown(few(lost))
    return passes(few(f"{folder}: {_least_free(room)}" for folder, room in rooms.items()), wanted)


def _written_folders(system: System) -> list[str]:
    """Mounts that jobs write to unless told otherwise: temporary files, caches, home, the root."""
    environment = system.environment
    home = environment.get("HOME")
    caches = environment.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    folders = [environment.get("TMPDIR") or "/tmp", caches, home, "/"]
    return sorted({lying_on(system, folder).point for folder in folders if folder})


def _free_shares(room: Room) -> tuple[float, float]:
    space = room.free_bytes / room.bytes if room.bytes else 1.0
    return space, room.free_inodes / room.inodes if room.inodes else 1.0


def _what_is_scarce(room: Room) -> str | None:
    space, inodes = _free_shares(room)
    if inodes < _LEAST_FREE:
        return f"{room.free_inodes:,} of {room.inodes:,} inodes free"
    if space < _LEAST_FREE:
        return f"{gibibytes(room.free_bytes)} of {gibibytes(room.bytes)} free"
    return None


def _least_free(room: Room) -> str:
    return f"{min(_free_shares(room)):.0%} free"


@probe("storage.random-access")
def random_access(system: System) -> Outcome:
    drives = [
        name for name in system.names("sys/block") if re.match(r"(nvme\d+n|sd[a-z]|vd[a-z]|xvd|md\d)", name)
    ]
    ahead = {drive: system.number(f"sys/block/{drive}/queue/read_ahead_kb") for drive in drives}
    wanted = f"at most {_DRIVE_READ_AHEAD:,} KiB, or advice (MADV_RANDOM) in programs that read at random"
    if not ahead:
        return not_applicable("no block device is visible")
    large = {drive: size for drive, size in ahead.items() if size > _DRIVE_READ_AHEAD}
    if large:
        fix = [f"echo 128 | sudo tee /sys/block/{drive}/queue/read_ahead_kb" for drive in large]
        return warns(few(f"{size:,} KiB on {drive}" for drive, size in large.items()), wanted, fix[:3])
    return passes(few(f"{size:,} KiB on {drive}" for drive, size in ahead.items()), wanted)


@probe("storage.safetensors")
def safetensors(system: System) -> Outcome:
    folder = hub_folder(system)
    mount = lying_on(system, folder)
    if mount.is_network:
        return unknown(f"{folder} lies on {mount.filesystem}: not searched, since that may take long")
    at = folder.lstrip("/")
    models: dict[str, set[str]] = {}
    for path in system.paths(f"{at}/models--*/snapshots/*/*.[bs][ia][nf]*"):
        model = path[len(at) + 1 :].split("/")[0].removeprefix("models--").replace("--", "/")
        # Arguments and optimizer state are kept in .bin files as well; weights have these names.
        weights = re.search(r"/(pytorch_model[^/]*\.bin|[^/]+\.safetensors)$", path)
        if weights:
            models.setdefault(model, set()).add(weights[1].rpartition(".")[2])
    wanted = "weights as safetensors"
    if not models:
        return not_applicable(f"no weights in {folder}")
    pickled = [model for model, kinds in models.items() if "safetensors" not in kinds]
    if pickled:
        return warns(f"{len(pickled)} of {len(models)} models as pickle only: {few(pickled)}", wanted)
    return passes(f"{len(models)} models, all as safetensors", wanted)


@probe("storage.hub-cache")
def hub_cache(system: System) -> Outcome:
    using = [name for name in _HUB_PACKAGES if name in system.packages]
    if not using:
        return not_applicable("no package that uses Hugging Face's cache is installed")
    folder = hub_folder(system)
    mount = lying_on(system, folder)
    wanted = "a local drive or volume that outlives the container"
    lost = lost_because(mount)
    if lost or mount.is_network:
        return warns(f"{folder} on {lost or f'{mount.filesystem}, over the network'}", wanted)
    return passes(f"{folder} on {mount.filesystem}", wanted)


def _nvme_drives(system: System) -> list[str]:
    # Paths of a multipath drive (nvme0c0n1) are hidden devices of the same drive.
    return [name for name in system.names("sys/block") if re.fullmatch(r"nvme\d+n\d+", name)]


def _drive_of(device: str) -> str:
    """`nvme0n1p2` → `nvme0n1`, `sda1` → `sda`."""
    return re.sub(r"(?<=\d)p\d+$", "", device) if device.startswith("nvme") else re.sub(r"\d+$", "", device)


def _unused_bytes(system: System, drive: str, sources: set[str]) -> int:
    """Its size where no part of it is mounted, swap, or part of an array; else 0."""
    parts = [drive, *(name for name in system.names(f"sys/block/{drive}") if name.startswith(drive))]
    held = []
    for part in parts:
        at = f"sys/block/{drive}" if part == drive else f"sys/block/{drive}/{part}"
        held += system.names(f"{at}/holders")
    size = system.number(f"sys/block/{drive}/size") * _SECTOR
    swap = [line.split()[0].removeprefix("/dev/") for line in system.lines("proc/swaps")[1:] if line.strip()]
    return 0 if held or sources & set(parts) or set(swap) & set(parts) else size


def _is_trimmable(system: System, drive: str) -> bool:
    try:
        turning = system.number(f"sys/block/{drive}/queue/rotational")
        return not turning and system.number(f"sys/block/{drive}/queue/discard_max_bytes") > 0
    except Unreadable:
        return False


def _nfs_mounts(system: System) -> list[_NfsMount]:
    """Each file system once: several mounts of one share a device number."""
    found: dict[str, _NfsMount] = {}
    for mount in system.mounts:
        if mount.filesystem in ("nfs", "nfs4"):
            options = {name: value for name, _, value in (word.partition("=") for word in mount.options)}
            found[mount.device] = _NfsMount(mount.point, mount.source, mount.device, options)
    return list(found.values())
