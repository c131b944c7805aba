"""Reading /proc, /sys and control groups. What cannot be read becomes an `Unknown` that says why."""

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Cgroup",
    "Mount",
    "Unknown",
    "cpu_quota",
    "find_cgroup",
    "parse_cpu_list",
    "parse_fields",
    "parse_mounts",
    "read_text",
]


# File systems whose data lie on another machine; those of FUSE by name, since a container's own layer and a
# desktop's portals are FUSE file systems as well.
_NETWORK = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "gpfs", "beegfs", "glusterfs", "wekafs", "afs"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.goofys", "fuse.geesefs", "fuse.rclone"),
        *("fuse.juicefs", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.blobfuse", "fuse.blobfuse2"),
        *("fuse.mountpoint-s3", "fuse.curvefs", "fuse.alluxio-fuse", "fuse.seaweedfs"),
    )
)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that could not be read. It takes the place of the value, so it cannot pass for one."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Cgroup:
    """This process's control group for one controller."""

    version: int
    """1 or 2."""
    folders: tuple[Path, ...]
    """The group itself first, then its visible ancestors: a limit set on any of them holds."""


@dataclass(frozen=True, slots=True)
class Mount:
    device: str
    """Its number, `major:minor`: several mounts of one file system share it."""
    root: str
    """What of the file system is seen here."""
    point: str
    filesystem: str
    source: str
    options: frozenset[str]
    """Those of the mount and of its file system together."""

    @property
    def is_network(self) -> bool:
        return self.filesystem in _NETWORK


def read_text(path: Path) -> str | Unknown:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return Unknown(str(path), error.strerror or type(error).__name__)


def parse_fields(text: str) -> dict[str, int]:
    """Lines of a name and a whole number, as in /proc/meminfo or a cgroup's cpu.stat; skips others."""
    fields = {}
    for line in text.splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdigit():
            fields[words[0]] = int(words[1])
    return fields


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The kernel's list format: `0-3,8` is (0, 1, 2, 3, 8)."""
    cpus: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first:
            cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """/proc/self/mountinfo, in the order of mounting: of two on one point the later one is seen."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        # At single blanks: a mount may have an empty source between two of them.
        fields, kind = left.split(), right.split(" ", 2)
        if len(fields) >= 6 and len(kind) == 3:
            options = frozenset(f"{fields[5]},{kind[2]}".split(","))
            found.append(Mount(fields[2], fields[3], _unescaped(fields[4]), kind[0], kind[1], options))
    return tuple(found)


def find_cgroup(controller: str, root: Path = Path("/")) -> Cgroup | Unknown:
    """The folders that hold this process's limits for a controller such as `cpu`, of either version."""
    what = f"{controller} control group"
    membership = read_text(root / "proc/self/cgroup")
    mounts = read_text(root / "proc/self/mountinfo")
    if isinstance(membership, Unknown):
        return Unknown(what, f"{membership.what}: {membership.why}")
    if isinstance(mounts, Unknown):
        return Unknown(what, f"{mounts.what}: {mounts.why}")

    paths: dict[str, str] = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        # The unified (version 2) line has no controller names: it stands under the empty string.
        for name in controllers.split(","):
            paths[name] = path
    version = 1 if controller in paths else 2
    path = paths.get(controller, paths.get("", "/"))

    for mount in parse_mounts(mounts):
        if version == 1:
            found = mount.filesystem == "cgroup" and controller in mount.options
        else:
            found = mount.filesystem == "cgroup2"
        if found:
            top = root / mount.point.lstrip("/")
            return Cgroup(version, _chain(top, path, mount.root))
    return Unknown(what, f"no version {version} hierarchy is mounted for it")


def cpu_quota(folder: Path) -> float | None:
    """CPUs' worth of time that a cpu control group may use; None without a limit."""
    both = read_text(folder / "cpu.max")
    if isinstance(both, Unknown):
        quota, period = read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us")
        both = f"{quota} {period}" if isinstance(quota, str) and isinstance(period, str) else ""
    words = both.split()
    if len(words) != 2 or words[0] in ("max", "-1"):
        return None
    return int(words[0]) / int(words[1])


def _chain(top: Path, path: str, mount_root: str) -> tuple[Path, ...]:
    # In a container without a cgroup namespace of its own, the path is the host's and the mount shows only
    # the container's part of it; with one, a group outside it reads as /../x and only the top is visible.
    if mount_root != "/" and path.startswith(mount_root):
        path = path[len(mount_root) :]
    relative = Path(path.lstrip("/"))
    folder = top if ".." in relative.parts else top / relative
    while folder != top and not folder.is_dir():
        folder = folder.parent
    chain = [folder]
    while folder != top:
        folder = folder.parent
        chain.append(folder)
    return tuple(chain)


def _unescaped(point: str) -> str:
    """The kernel writes blanks in mount points as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)
