"""Reading /proc, /sys and control groups. What cannot be read becomes an `Unknown` that says why."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cgroup", "Unknown", "cpu_quota", "find_cgroup", "parse_cpu_list", "parse_fields", "read_text"]


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

    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        mount_root, mount_point = left.split()[3:5]
        # At single blanks: a mount may have an empty source between two of them.
        filesystem, _, options = right.split(" ", 2)
        if version == 1:
            found = filesystem == "cgroup" and controller in options.split(",")
        else:
            found = filesystem == "cgroup2"
        if found:
            top = root / mount_point.lstrip("/")
            return Cgroup(version, _chain(top, path, mount_root))
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
