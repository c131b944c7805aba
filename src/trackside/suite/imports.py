"""Which files a workload depends on: its own, the project's modules that it imports, files it names.

Read from the syntax trees; nothing is run. Imports by computed names are not seen.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Final

__all__ = ["Closure", "Reader"]

# Enough for any project's own modules below a workload; a workload that imports a tree of thousands is told
# from its own file, and hashing all of them on every save would not be.
_MAX_FILES: Final = 1000
_MAX_BYTES: Final = 16 << 20
# Of a task folder of GPU MODE: what is part of the task.
_TASK_SUFFIXES: Final = (".py", ".yml", ".yaml")
# Below a home folder too (`pip install --user`), with thousands of files that nobody edits.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True)
class Closure:
    """All files that an entry depends on, as they are now."""

    files: frozenset[Path]
    digest: str
    """Of names and contents; another one means that something has changed."""
    broken: str | None
    """Why a file cannot be evaluated now: `fused.py:3: a syntax error: …`; None where all parse."""
    truncated: bool = False


@dataclass(frozen=True)
class _File:
    """One file as it was read."""

    stamp: tuple[int, ...]
    sha256: str
    broken: str | None
    imports: tuple[tuple[int, str], ...]
    """Level and dotted name of each import."""
    named: tuple[str, ...]
    """Text in it that may be the name of a file."""


class Reader:
    """Reads closures, and remembers the files that have not changed since.

    Args:
        root: the suite's folder; modules are looked for beside the importing file, here, in `src` below, and
            where Python looks for what is not installed into its own folders.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._places = tuple(dict.fromkeys((self._root, self._root / "src", *_import_path())))
        self._seen: dict[Path, _File] = {}

    def closure(self, starts: tuple[Path, ...]) -> Closure:
        """The closure of the files that an entry names."""
        queue = [path for start in starts for path in _expand(start)]
        found: dict[Path, str] = {}
        broken: str | None = None
        while queue and len(found) < _MAX_FILES:
            path = Path(os.path.abspath(queue.pop(0)))
            if path in found:
                continue
            read = self._read(path)
            found[path] = read.sha256
            broken = broken or read.broken
            queue += self._imported(path, read)
            # Beside the file or in the suite's folder; whether it is opened is not known, but it is cheap.
            for name in read.named:
                for folder in (path.parent, self._root):
                    if (folder / name).is_file():
                        queue.append(folder / name)
                        break
        digest = hashlib.sha256()
        for path, sha256 in sorted(found.items()):
            digest.update(f"{os.fsencode(path)!r}\0{sha256}\0".encode())
        return Closure(frozenset(found), digest.hexdigest(), broken, bool(queue) and len(found) >= _MAX_FILES)

    def _read(self, path: Path) -> _File:
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_ctime_ns)
            known = self._seen.get(path)
            if known is not None and known.stamp == stamp:
                return known
            if not S_ISREG(stat.st_mode):
                # Reading a pipe waits for ever, and a device has no end.
                return _File((), "unreadable", f"{path.name} is no ordinary file", (), ())
            if stat.st_size > _MAX_BYTES:
                # Data: its size and time stand for its bytes.
                return self._keep(path, _File(stamp, repr(stamp[:2]), None, (), ()))
            data = path.read_bytes()
        except FileNotFoundError:
            self._seen.pop(path, None)
            return _File((), "missing", f"{path.name} is missing", (), ())
        except OSError as error:
            return _File((), "unreadable", f"{path.name} cannot be read: {error.strerror}", (), ())
        sha256 = hashlib.sha256(data).hexdigest()
        if path.suffix != ".py":
            return self._keep(path, _File(stamp, sha256, None, (), ()))
        try:
            tree = ast.parse(data, filename=str(path))
        except SyntaxError as error:
            why = f"{path.name}:{error.lineno or 1}: a syntax error: {error.msg}"
            return self._keep(path, _File(stamp, sha256, why, (), ()))
        except (ValueError, RecursionError, MemoryError) as error:
            why = f"{path.name}: Python cannot parse it: {error}"
            return self._keep(path, _File(stamp, sha256, why, (), ()))
        return self._keep(path, _File(stamp, sha256, None, tuple(_imports(tree)), tuple(_names(tree))))

    def _keep(self, path: Path, file: _File) -> _File:
        self._seen[path] = file
        return file

    def _imported(self, path: Path, read: _File) -> Iterator[Path]:
        for level, name in read.imports:
            parts = [part for part in name.split(".") if part]
            if level:
                base = path.parent
                for _ in range(level - 1):
                    base = base.parent
                yield from _modules(base, parts)
                continue
            for folder in (path.parent, *self._places):
                found = list(_modules(folder, parts))
                if found:
                    yield from found
                    break


def _import_path() -> list[Path]:
    """Folders of PYTHONPATH and of editable installations: what lies there is somebody's project."""
    own = [Path(folder).resolve() for folder in (sys.prefix, sys.base_prefix)]
    found = [Path(entry).resolve() for entry in sys.path if entry]
    return [
        path
        for path in found
        if path.is_dir()
        and _INSTALLED.isdisjoint(path.parts)
        and not any(path.is_relative_to(one) for one in own)
    ]


def _expand(start: Path) -> list[Path]:
    if not start.is_dir():
        return [start]
    return sorted(path for path in start.iterdir() if path.suffix in _TASK_SUFFIXES)


def _modules(folder: Path, parts: list[str]) -> Iterator[Path]:
    """The files that importing this dotted name below a folder runs; its last parts may be names inside."""
    place = folder
    for part in parts:
        module, package = place / f"{part}.py", place / part
        if package.is_dir():
            if (package / "__init__.py").is_file():
                yield package / "__init__.py"
            place = package
        elif module.is_file():
            yield module
            return
        else:
            return


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield node.level, base
            for alias in node.names:
                # `from package import module` runs the module too.
                yield node.level, f"{base}.{alias.name}" if base else alias.name


def _names(tree: ast.AST) -> Iterator[str]:
    """Literals that look like the name of a file: with a suffix, short, on one line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if 2 < len(text) < 200 and "." in text[1:-1] and text.isprintable() and " " not in text:
                yield text
