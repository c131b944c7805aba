"""Fills a folder with what a GPU machine without a package index lacks; PYTHONPATH does the rest.

Run by `make bundle` inside .venv: versions are those installed there, so what travels is what was tested.
"""

import argparse
import importlib.metadata as metadata
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["closure", "fill", "main"]

# What Trackside and `make test-gpu` need and the PyTorch images of GPU machines do not have.
WANTED = ("pydantic", "orjson", "mcp", "pyyaml", "pytest", "pytest-timeout")

# What such an image has, in versions that suit its torch; a second copy on PYTHONPATH would hide them.
PRESENT = frozenset(
    {
        "annotated-doc",
        "click",
        "jinja2",
        "markdown-it-py",
        "markupsafe",
        "mdurl",
        "numpy",
        "nvidia-ml-py",
        "psutil",
        "pygments",
        "rich",
        "shellingham",
        "torch",
        "typer",
        "typing-extensions",
    }
)

TARGET_PYTHON = "3.12"
# pip takes these literally, so the older tags that still run on a current image are named too.
TARGET_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
TARGET_MARKERS = {
    "python_version": TARGET_PYTHON,
    "python_full_version": f"{TARGET_PYTHON}.0",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "platform_machine": "x86_64",
}

# It travels with the working tree at every run on the GPU machine.
LIMIT_MIB = 40

# In every bundle: its packages, and the sign that the folder is ours to replace.
LIST = "trackside-bundle.txt"


def closure(wanted: tuple[str, ...]) -> dict[str, str]:
    """Name → version of everything wanted and needed on the target, less what is present there."""
    found: dict[str, str] = {}
    queue: list[tuple[str, frozenset[str]]] = [(name, frozenset()) for name in wanted]
    seen: set[tuple[str, frozenset[str]]] = set()
    while queue:
        name, extras = entry = queue.pop()
        if entry in seen or name in PRESENT:
            continue
        seen.add(entry)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            sys.exit(
                f"{name} is needed on Python {TARGET_PYTHON} but is not installed here; run `make setup`"
            )
        found[name] = distribution.version
        for line in distribution.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or any(
                requirement.marker.evaluate(TARGET_MARKERS | {"extra": extra}) for extra in extras | {""}
            ):
                queue.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return found


def fill(folder: Path, packages: dict[str, str]) -> float:
    """Makes the folder a bundle of exactly these packages, as wheels for the target; returns its MiB.

    The old bundle stays until the new one is complete and small enough; any other folder stays as it is.
    """
    folder = folder.resolve()
    if folder.exists() and not (folder / LIST).is_file():
        sys.exit(f"{folder} is there and not a bundle (no {LIST} in it); delete it, or name another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside it, since a rename does not cross file systems.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        _install(new, packages)
        size_mib = sum(path.stat().st_size for path in new.rglob("*") if path.is_file()) / 2**20
        if size_mib >= LIMIT_MIB:
            sys.exit(
                f"the bundle has {size_mib:.1f} MiB and must stay under {LIMIT_MIB}; "
                "leave out what the GPU machine does not need"
            )
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    return size_mib


def _install(folder: Path, packages: dict[str, str]) -> None:
    pinned = [f"{name}=={version}" for name, version in sorted(packages.items())]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--target", str(folder), "--no-compile", "--only-binary=:all:"]
    command += ["--python-version", TARGET_PYTHON]
    for platform in TARGET_PLATFORMS:
        command += ["--platform", platform]
    command += pinned
    if subprocess.run(command, check=False).returncode:
        sys.exit("pip could not install the packages (see above)")
    # Start scripts carry this machine's interpreter in their first line.
    shutil.rmtree(folder / "bin", ignore_errors=True)
    (folder / LIST).write_text("\n".join(pinned) + "\n")


def main() -> None:
    """Builds the bundle of this environment's versions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    packages = closure(WANTED)
    size_mib = fill(folder, packages)
    print(f"{folder}: {len(packages)} packages for Python {TARGET_PYTHON}, {size_mib:.1f} MiB")


if __name__ == "__main__":
    main()
