"""What a command line is made of: its program, files it names, and what Python files among them import."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trackside.records.errors import TracksideError
from trackside.workload.formats.source import local_files, read_source

__all__ = ["identify", "parse_command"]


def parse_command(command: str, role: str, folder: Path) -> list[str]:
    """The words of a command line whose program exists.

    Raises:
        TracksideError: usage or not-found.
    """
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise TracksideError(
            "usage", f"the {role} is no command line ({error}): {command}", "balance its quotes"
        ) from error
    if not argv:
        raise TracksideError("usage", f"the {role} is empty", 'give a command, such as "python old.py"')
    if _program(argv[0], folder) is None:
        raise TracksideError(
            "not-found",
            f"found no program `{argv[0]}` for the {role}",
            "check its spelling; commands run without a shell: for pipes and builtins use `sh -c '…'`",
        )
    return argv


def identify(command: str, role: str, folder: Path, outputs: Sequence[str] = ()) -> dict[str, Any]:
    """A command as it is now, in the form of a record's `FileIdentity`; `outputs` are written, not read."""
    argv = parse_command(command, role, folder)
    written = {(folder / name).resolve() for name in outputs}
    named = [Path(_program(argv[0], folder) or argv[0]), *_named(argv, folder)]
    files: dict[str, str] = {}
    for path in named:
        # A word may be anything: too long for a name, or with a null byte in it.
        with contextlib.suppress(OSError, ValueError):
            file = path.resolve()
            if file.is_file() and file not in written:
                files.update(_with_imports(file))
    together = "\n".join([command, *(f"{digest} {path}" for path, digest in sorted(files.items()))])
    return {
        "path": command,
        "format": "command",
        "sha256": hashlib.sha256(together.encode()).hexdigest(),
        "files": dict(sorted(files.items())),
    }


def _named(argv: Sequence[str], folder: Path, inner: bool = False) -> Iterator[Path]:
    """Paths that the words of a command line may stand for, also of a line within a word, as for `sh -c`."""
    for before, token in itertools.pairwise(argv):
        # A file may stand alone, behind `--option=`, or be a module behind -m.
        yield from (folder / part for part in sorted({token, token.rpartition("=")[2]}) if part)
        if before == "-m":
            yield folder / f"{token.replace('.', '/')}.py"
        if not inner and any(sign.isspace() for sign in token):
            with contextlib.suppress(ValueError):
                line = shlex.shlex(token, posix=True, punctuation_chars=True)
                line.whitespace_split = True
                # The first word of such a line is no option's value: a program, or a file as any other.
                yield from _named(["", *line], folder, inner=True)


def _with_imports(file: Path) -> dict[str, str]:
    with file.open("rb") as content:
        found = {str(file): hashlib.file_digest(content, "sha256").hexdigest()}
    if file.suffix == ".py":
        # What Python cannot parse fails when it runs, with its own error.
        with contextlib.suppress(TracksideError):
            found |= local_files(read_source(file), [file.parent])
    return found


def _program(name: str, folder: Path) -> str | None:
    return shutil.which(str(folder / name) if os.sep in name else name)
