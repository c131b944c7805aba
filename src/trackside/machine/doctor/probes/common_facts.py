"""What probes of several families ask for: versions of packages, and where a folder lies."""

from __future__ import annotations

import os
import re

from trackside.machine.doctor.system import System, Unreadable
from trackside.machine.system_files import Mount, Unknown

__all__ = ["gibibytes", "home", "hub_folder", "lost_because", "lying_on", "version"]


def version(system: System, package: str) -> tuple[int, int] | None:
    """Major and minor version of an installed package; None where it is not installed."""
    found = re.match(r"(\d+)\.(\d+)", system.packages.get(package, ""))
    return (int(found[1]), int(found[2])) if found else None


def home(system: System) -> str:
    folder = system.environment.get("HOME")
    if not folder:
        raise Unreadable(Unknown("the home directory", "HOME is not set"))
    return folder


def hub_folder(system: System) -> str:
    """Where Hugging Face's libraries keep models, by their own rules."""
    environment = system.environment
    named = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return _absolute(system, named)
    if environment.get("HF_HOME"):
        return _absolute(system, environment["HF_HOME"]) + "/hub"
    cache = environment.get("XDG_CACHE_HOME") or f"{home(system)}/.cache"
    return _absolute(system, cache) + "/huggingface/hub"


def _absolute(system: System, folder: str) -> str:
    return home(system) + folder[1:] if folder.startswith("~") else folder.rstrip("/")


def lying_on(system: System, folder: str) -> Mount:
    """The mount on which a folder lies, links followed where it is this machine's."""
    if folder.startswith("~"):
        folder = home(system) + folder[1:]
    return system.mount_of(os.path.realpath(folder) if system.live else os.path.normpath(folder))


def lost_because(mount: Mount) -> str | None:
    """Why what is written there does not outlive the container or the machine; None where it does."""
    if mount.filesystem in ("tmpfs", "ramfs"):
        return f"{mount.filesystem}, in memory: gone at the next start"
    if mount.filesystem in ("overlay", "aufs", "fuse.fuse-overlayfs"):
        return f"{mount.filesystem}, the container's own layer: gone with the container"
    return None


def gibibytes(amount: float) -> str:
    """Bytes in words: `3.5 GiB`, `12 MiB`."""
    if amount >= 1 << 30:
        return f"{amount / (1 << 30):,.1f} GiB"
    return f"{amount / (1 << 20):,.0f} MiB"
