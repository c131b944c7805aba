"""Imports a user's file under a private name, its folder first on the path, and explains what fails."""

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from trackside.records.errors import TracksideError
from trackside.workload.formats.workload import fault

__all__ = ["blaming", "import_file", "offer_modules", "optional_callable", "required_callable"]


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Compiles what the file says now: a cached .pyc of equal size and time could be another program."""

    def get_code(self, fullname: str) -> CodeType | None:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


class _OfferedModules(importlib.abc.MetaPathFinder):
    """Gives some top-level names a file each, before the ordinary path is searched."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = dict(files)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = self.files.get(fullname)
        return None if file is None else _spec(fullname, file)


def _spec(name: str, file: Path) -> importlib.machinery.ModuleSpec | None:
    return importlib.util.spec_from_file_location(name, file, loader=_SourceLoader(name, str(file)))


def offer_modules(files: Mapping[str, Path]) -> None:
    """Let `import name` find these files from now on, for imports inside functions too."""
    if files:
        sys.meta_path.insert(0, _OfferedModules(files))


def import_file(path: Path, role: str, *, first: bool = True) -> ModuleType:
    """Run `path` as a module of its own.

    Args:
        path: the file.
        role: part of the private name.
        first: whether its folder goes to the front of the import path. Not for a second file in one process:
            the first one's later imports must still find its own helpers.

    Raises:
        TracksideError: missing-dependency for a module that is not installed, else workload.
    """
    path = path.resolve()
    folder = str(path.parent)
    if first or folder not in sys.path:
        # In front, so that a helper beside the file wins over an installed package of the same name.
        sys.path[:] = [entry for entry in sys.path if entry != folder]
        sys.path.insert(0 if first else 1, folder)
    # A path need not be text.
    stem = path.stem.encode(errors="replace").decode()
    name = f"_trackside_{role}_{stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
    spec = _spec(name, path)
    if spec is None or spec.loader is None:
        raise fault("workload", f"{path}, which Python cannot import", "a Python file", "check the path")
    module = importlib.util.module_from_spec(spec)
    # Registered, since dataclasses, pickle and compilers look a function's module up by name.
    sys.modules[name] = module
    try:
        with blaming("importing", path):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def blaming(what: str, path: Path) -> Iterator[None]:
    """Turn what user code raises into an error that names the line; running out of memory passes through."""
    try:
        yield
    except TracksideError:
        raise
    except ModuleNotFoundError as error:
        place, missing = _place(error, path), error.name or "a module"
        raise fault(
            "missing-dependency",
            f"an import of `{missing}` at {place}, which is not installed here",
            f"`{missing}` to load {path.name}",
            f"install it into {sys.prefix}, or put {missing}.py beside {path.name}",
        ) from error
    except (Exception, SystemExit) as error:
        # Whether a size fits is for the caller to say, with the arithmetic.
        wanting = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
        if wanting or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            raise
        place, text = _place(error, path), f"{type(error).__name__}: {error}".strip(": ")
        raise fault(
            "workload",
            f"{text} at {place} while {what} {path.name}",
            "code that runs to its end",
            f"correct {place}",
        ) from error


def _place(error: BaseException, path: Path) -> str:
    """The deepest line of the traceback that lies in the user's folder, else the deepest of all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    folder = str(path.resolve().parent)
    own = [frame for frame in frames if frame.filename.startswith(folder)]
    frame = (own or list(frames))[-1] if frames else None
    return f"{frame.filename}:{frame.lineno}" if frame is not None else str(path)


def required_callable(module: ModuleType, name: str, path: Path) -> Callable[..., Any]:
    """The module's `name`, which must be there and callable."""
    found = getattr(module, name, None)
    if not callable(found):
        shown = (
            f"{path} without `{name}`"
            if found is None
            else f"`{name}` of type {type(found).__name__} in {path}"
        )
        raise fault("workload", shown, f"a callable `{name}`", f"define `{name}` in {path}")
    if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found):
        raise fault(
            "workload",
            f"`{name}` in {path} as a coroutine or generator",
            "a function that returns",
            f"define `{name}` with def and return",
        )
    result: Callable[..., Any] = found
    return result


def optional_callable(module: ModuleType, name: str, path: Path) -> Callable[..., Any] | None:
    """The module's `name` where it is defined and not None."""
    return None if getattr(module, name, None) is None else required_callable(module, name, path)
