"""Does something once the program has imported a module.

Importing it for the program would be too early: what a script sets before `import torch` (threads, visible
devices) would come too late. Standard library only: this runs in the program's process.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["when_imported"]


def when_imported(name: str, then: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call `then` with a module right after the program's first import of it; at once if that has been.

    What `then` raises is the program's to see only as a failed import, so it must not raise.

    Returns:
        What to call when nobody wants to be told any longer: a block of a program may be over before.
    """
    finder = _Finder(name, then)
    module = sys.modules.get(name)
    if module is not None:
        then(module)
    else:
        finder.wait()
    return finder.forget


class _Finder:
    """Lets the others find the module, and takes itself out."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then
        self._wanted = True

    def wait(self) -> None:
        if self._wanted:
            sys.meta_path.insert(0, self)

    def forget(self) -> None:
        self._wanted = False
        with suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            # Not there: the program may make it importable, and try again.
            self.wait()
            return None
        loader, execute = spec.loader, spec.loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            # On the instance, so that the loader is of its own class still; gone before it is used again.
            # Where several wait for one module, the first has taken away what is there of all.
            with suppress(AttributeError):
                del loader.exec_module
            try:
                execute(module)
            except BaseException:
                self.wait()
                raise
            if self._wanted:
                self._then(module)

        try:
            loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        except AttributeError:
            # A loader with slots, as of frozen modules: not torch's.
            return spec
        return spec
