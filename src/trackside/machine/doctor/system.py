"""A machine as probes see it: the one they run on, or a recorded tree of its files. Nothing here writes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from trackside.machine.doctor.script import Script
from trackside.machine.gpu_state import read_gpus
from trackside.machine.system_files import Cgroup, Mount, Unknown, find_cgroup, parse_mounts

__all__ = ["GPUS_FILE", "PYTHON_FILE", "ROOM_FILE", "Room", "System", "Unreadable"]

# Beside proc and sys in a recorded tree: what comes from NVML, Python's packages and statvfs, not from files.
GPUS_FILE, PYTHON_FILE, ROOM_FILE = "nvml.json", "python.json", "room.json"
_MOST_BYTES = 1 << 20
"""No file that a probe reads is longer; one that is says something else than expected."""


class Unreadable(Exception):
    """A fact that could not be had, with the reason; what a probe then has to say is `unknown`."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(f"{unknown.what}: {unknown.why}")
        self.unknown = unknown


@dataclass(frozen=True, slots=True)
class Room:
    """What a file system has; `inodes` is 0 where it makes them as it needs them."""

    bytes: int
    free_bytes: int
    inodes: int
    free_inodes: int


@dataclass
class System:
    """Questions about one machine. Each raises `Unreadable` where there is no answer.

    Paths are relative to the root: `sys/kernel/mm/ksm/run`.
    """

    root: Path = Path("/")
    script: Script | None = None
    seen: set[str] = field(default_factory=set)
    """Files that were asked for: so much is a machine's recording."""
    rooms: set[str] = field(default_factory=set)
    """Folders whose room was asked for."""

    @property
    def live(self) -> bool:
        return self.root == Path("/")

    # -- files -----------------------------------------------------------------------------------

    def text(self, path: str) -> str:
        """A file's text without the blanks around it."""
        self.seen.add(path)
        try:
            with (self.root / path).open("rb") as file:
                return file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
        except OSError as error:
            raise Unreadable(Unknown(f"/{path}", error.strerror or type(error).__name__)) from error

    def lines(self, path: str) -> list[str]:
        return self.text(path).splitlines()

    def number(self, path: str) -> int:
        """A file that holds one whole number."""
        text = self.text(path)
        try:
            return int(text.split()[0])
        except (ValueError, IndexError) as error:
            raise Unreadable(Unknown(f"/{path}", f"no number but {text[:40]!r}")) from error

    def chosen(self, path: str) -> str:
        """The word in brackets, as in `always [madvise] never`; the only word where there are no brackets."""
        text = self.text(path)
        found = re.search(r"\[([^]]+)\]", text)
        return found[1] if found else text

    def exists(self, path: str) -> bool:
        self.seen.add(path)
        return (self.root / path).exists()

    def names(self, folder: str) -> list[str]:
        """What lies in a folder, sorted; nothing where there is no such folder."""
        self.seen.add(folder)
        try:
            return sorted(os.listdir(self.root / folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise Unreadable(Unknown(f"/{folder}", error.strerror or type(error).__name__)) from error

    def paths(self, pattern: str) -> list[str]:
        """Paths that fit a pattern such as `sys/block/*/queue/rotational`, numbers in their order."""
        found = [str(path.relative_to(self.root)) for path in self.root.glob(pattern)]
        self.seen.update(found)
        return sorted(found, key=_natural)

    def link(self, path: str) -> str:
        """Where a symbolic link points, as it is written there."""
        self.seen.add(path)
        try:
            return os.readlink(self.root / path)
        except OSError as error:
            raise Unreadable(Unknown(f"/{path}", error.strerror or type(error).__name__)) from error

    # -- what several probes ask for -------------------------------------------------------------

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """The environment that a program started from here would have."""
        if self.live:
            return dict(os.environ)
        entries = self.text("proc/self/environ").replace("\n", "\0").split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)

    @cached_property
    def kernel_arguments(self) -> Mapping[str, str]:
        """The kernel's command line; a word without a value has the empty one."""
        words = [word.partition("=") for word in self.text("proc/cmdline").split()]
        return {name: value for name, _, value in words}

    @cached_property
    def modules(self) -> frozenset[str]:
        """Loaded kernel modules; those that are built in are not among them."""
        return frozenset(line.split()[0] for line in self.lines("proc/modules") if line.strip())

    @cached_property
    def memory(self) -> Mapping[str, int]:
        """/proc/meminfo, in bytes (counts of huge pages as they are)."""
        found: dict[str, int] = {}
        for line in self.lines("proc/meminfo"):
            words = line.replace(":", " ").split()
            if len(words) >= 2 and words[1].isdigit():
                found[words[0]] = int(words[1]) * (1024 if words[-1] == "kB" else 1)
        return found

    @cached_property
    def limits(self) -> Mapping[str, int | None]:
        """Soft limits of this process (`Max open files`, …); None is unlimited."""
        found: dict[str, int | None] = {}
        for line in self.lines("proc/self/limits")[1:]:
            row = re.match(r"(.+?)\s{2,}(\S+)\s+(\S+)", line)
            if row:
                found[row[1]] = None if row[2] == "unlimited" else int(row[2])
        return found

    @cached_property
    def mounts(self) -> tuple[Mount, ...]:
        """In the order in which they were mounted: of two on one point the later one counts."""
        return parse_mounts(self.text("proc/self/mountinfo"))

    def mount_of(self, path: str) -> Mount:
        """The mount on which an absolute path lies."""
        best: Mount | None = None
        for mount in self.mounts:
            inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
            if inside and (best is None or len(mount.point) >= len(best.point)):
                best = mount
        if best is None:
            raise Unreadable(Unknown(path, "no mount holds it"))
        return best

    def room(self, folder: str) -> Room:
        """What is left on the file system on which an absolute path lies."""
        self.rooms.add(folder)
        if not self.live:
            recorded = self._recorded(ROOM_FILE, "folders")
            if folder not in recorded:
                raise Unreadable(Unknown(folder, "its room was not recorded"))
            return Room(**recorded[folder])
        try:
            found = os.statvfs(folder)
        except OSError as error:
            raise Unreadable(Unknown(folder, error.strerror or type(error).__name__)) from error
        unit = found.f_frsize
        return Room(found.f_blocks * unit, found.f_bavail * unit, found.f_files, found.f_favail)

    def cgroup(self, controller: str) -> Cgroup:
        self.seen |= {"proc/self/cgroup", "proc/self/mountinfo"}
        try:
            found = find_cgroup(controller, self.root)
        except (ValueError, IndexError) as error:
            found = Unknown("/proc/self/cgroup", f"not as the kernel writes it: {error}")
        if isinstance(found, Unknown):
            raise Unreadable(found)
        return found

    def cgroup_file(self, controller: str, name: str) -> str:
        """A control file of this process's own group."""
        folder = self.cgroup(controller).folders[0]
        return self.text(str((folder / name).relative_to(self.root)))

    @property
    def gpus(self) -> tuple[Mapping[str, Any], ...]:
        """What NVML says of each GPU; empty where there is a driver and no GPU."""
        found = self._gpus
        if isinstance(found, Unknown):
            raise Unreadable(found)
        return tuple(found)

    @cached_property
    def _gpus(self) -> list[dict[str, Any]] | Unknown:
        """Asked once, also where there is no answer: NVML takes its time to say so."""
        if self.live:
            return read_gpus()
        found: list[dict[str, Any]] | Unknown = self._recorded(GPUS_FILE, "gpus")
        return found

    @cached_property
    def packages(self) -> Mapping[str, str]:
        """Versions of the Python packages that are installed here, by their normalised names."""
        if not self.live:
            recorded: dict[str, str] = self._recorded(PYTHON_FILE, "packages")
            return recorded
        found = {}
        for package in metadata.distributions():
            name = package.metadata["Name"]
            if name:
                found[re.sub(r"[-_.]+", "-", name).lower()] = package.version
        return found

    def _recorded(self, name: str, key: str) -> Any:
        try:
            document = json.loads(self.text(name))
        except ValueError as error:
            raise Unreadable(Unknown(name, f"no JSON: {error}")) from error
        if not isinstance(document, dict) or not {"unknown", key} & document.keys():
            raise Unreadable(Unknown(name, f"it has no {key}"))
        return Unknown(**document["unknown"]) if "unknown" in document else document[key]


def _natural(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path)]
