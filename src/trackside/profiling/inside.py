"""The part of us in the program's process: begins the capture before its first line, ends it after its last.

The end is an exit handler, registered before any of the program's and so run after all of them: after an
uncaught exception was printed, after `sys.exit`, after threads were waited for. A program that ends by
`os._exit`, a signal or `exec` has no such moment; neither has a process that it forked.

Whatever is imported for us is hidden from the program again, since its folder may hold a `json.py` or a
`trackside.py`. So a capture imports what it needs of the standard library and of ours at the top of its
modules, or at its end, and nothing else; what it does to the program's own modules it does through
`sys.modules`. Here, only built-in modules are used.
"""

from __future__ import annotations

import _operator
import atexit
import marshal
import os
import posix
import posixpath
import sys

TYPE_CHECKING = False  # the real one would import typing
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from types import ModuleType, TracebackType
    from typing import Any

    Capture = Callable[["Setting"], AbstractContextManager[None]]

__all__ = ["MAX_MESSAGE_BYTES", "Messages", "Setting", "begin"]

MAX_MESSAGE_BYTES = 4096
"""PIPE_BUF: up to so many bytes a write to a pipe is done as a whole or not at all."""

_FLAGS = posix.O_WRONLY | posix.O_NONBLOCK | posix.O_CLOEXEC
# Captured before the program can replace them.
_open, _write, _close, _getpid = posix.open, posix.write, posix.close, posix.getpid


class Messages:
    """The way to the launcher: a named pipe, open only while something is said.

    An open descriptor would be one too many in the program's numbering; and one that the program closed, and
    got again for a file of its own, would have us write into that file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._pid = _getpid()
        self._count = 0

    def send(self, kind: str, **values: str | float | bool | None) -> bool:
        """Whether the launcher will get it. Never waits: when the pipe is full, the message is lost.

        Raises:
            ValueError: for a message of more than `MAX_MESSAGE_BYTES`.
        """
        if _getpid() != self._pid:
            return False
        self._count += 1
        line = _as_json({**values, "kind": kind, "serial": self._count}) + "\n"
        if len(line) > MAX_MESSAGE_BYTES:
            raise ValueError(f"found a message of {len(line)} bytes, needed: at most {MAX_MESSAGE_BYTES}")
        try:
            pipe = _open(self._path, _FLAGS)
        except OSError:
            return False
        try:
            return _write(pipe, line.encode("ascii")) == len(line)
        except OSError:
            return False
        finally:
            _close(pipe)


class Setting:
    """What a capture is told.

    Attributes:
        configuration: what the launcher was given for it.
        folder: where its results go; absolute, since the program may change directory.
        messages: the way to the launcher.
    """

    def __init__(self, configuration: Mapping[str, Any], folder: str, messages: Messages) -> None:
        self.configuration = configuration
        self.folder = folder
        self.messages = messages


def begin(handed_over: str, modules: dict[str, ModuleType], finders: dict[str, Any]) -> None:
    """Start the capture that the launcher asks for, and have it ended.

    Args:
        handed_over: the launcher's folder.
        modules: `sys.modules` before we imported anything.
        finders: `sys.path_importer_cache` likewise.
    """
    own = _OwnModules(modules, finders)
    try:
        with _Unseen(), own:
            with open(f"{handed_over}/configuration", "rb") as file:
                handed = marshal.load(file)
            messages = Messages(f"{handed_over}/messages")
            module, _, function = handed["capture"].partition(":")
            capture: Capture = getattr(__import__(module, fromlist=[function]), function)
            manager = capture(Setting(handed["configuration"], handed["folder"], messages))
            manager.__enter__()
            atexit.register(_finish, manager, messages, own, handed_over, _getpid())
        messages.send("begun")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _note(handed_over, "did not begin", error)


class _Unseen:
    """Hides exit handlers that are registered inside the `with` block from the program's trace function.

    Handlers run from the last registered to the first, so the program's come before all of ours. Those that
    take its trace and profile functions away and put them back are C functions: what is written in Python
    would itself be seen. A profiler that is no function (cProfile's) cannot be put back, and is not.
    """

    def __enter__(self) -> None:
        self._traces: list[Any] = []
        self._profiles: list[Any] = []
        nothing: list[None] = []
        atexit.register(nothing.extend, map(sys.setprofile, filter(callable, self._profiles)))
        put_back: Any = sys.settrace
        atexit.register(nothing.extend, map(put_back, filter(callable, self._traces)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        atexit.register(sys.setprofile, None)
        atexit.register(sys.settrace, None)
        atexit.register(self._profiles.extend, map(_operator.call, [sys.getprofile]))
        atexit.register(self._traces.extend, map(_operator.call, [sys.gettrace]))


def _finish(
    manager: AbstractContextManager[None], messages: Messages, own: _OwnModules, folder: str, pid: int
) -> None:
    if _getpid() != pid:
        return
    try:
        with own:
            manager.__exit__(None, None, None)
        messages.send("finished")
    except BaseException as error:
        # Also Ctrl-C: the program is over, and how it ended is decided.
        _note(folder, "did not end in order", error)
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        # Python remembers that the program ended by it, to end by SIGINT itself, until a text is next
        # executed; a capture may have done that, by importing dataclasses for one. So it is reminded.
        try:  # noqa: SIM105 - contextlib is not built in
            exec("raise KeyboardInterrupt")
        except KeyboardInterrupt:
            pass


class _OwnModules:
    """What was loaded for us; only inside the `with` block do imports find it, and the standard library.

    Args:
        modules: `sys.modules` before we loaded anything.
        finders: `sys.path_importer_cache` then.
    """

    def __init__(self, modules: dict[str, ModuleType], finders: dict[str, Any]) -> None:
        standard = posixpath.dirname(os.__file__)
        found = [entry for entry in sys.path if entry.endswith("/lib-dynload")]
        self._path = [standard, *found]
        self._ours: dict[str, ModuleType] = {}
        self._theirs: dict[str, ModuleType] = {}
        self._their_path = sys.path
        self._their_finders: dict[str, Any] = {}
        self._put_back(modules, finders)

    def __enter__(self) -> None:
        self._theirs = dict(sys.modules)
        self._their_path = sys.path
        self._their_finders = dict(sys.path_importer_cache)
        for name, module in self._theirs.items():
            if self._is_in_the_way(name, module):
                del sys.modules[name]
        sys.modules.update(self._ours)
        sys.path = list(self._path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        sys.path = self._their_path
        self._put_back(self._theirs, self._their_finders)
        # What the program drops shall go.
        self._theirs, self._their_finders = {}, {}

    def _put_back(self, modules: dict[str, ModuleType], finders: dict[str, Any]) -> None:
        # Packages first: what lies in a hidden one is hidden too, or the program's own would not have it.
        for name, module in sorted(sys.modules.items()):
            if modules.get(name) is module:
                continue
            if name.rpartition(".")[0] in self._ours or _can_be_hidden(name, module):
                self._ours[name] = module
                del sys.modules[name]
        sys.modules.update(modules)
        for place in sys.path_importer_cache.keys() - finders.keys():
            del sys.path_importer_cache[place]

    def _is_in_the_way(self, name: str, module: ModuleType) -> bool:
        """Whether it is a module of the program's under a name of ours or of the standard library."""
        top = name.partition(".")[0]
        if top == "trackside":
            return True
        # First the name: some modules of the program's load themselves when they are looked at.
        if top not in sys.stdlib_module_names:
            return False
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and not file.startswith(tuple(f"{place}/" for place in self._path))


def _can_be_hidden(name: str, module: ModuleType) -> bool:
    """Whether the program may load it anew: a Python file of ours or of the standard library.

    Built-in and frozen modules come before any file of that name. Extension modules may refuse to be loaded
    twice.
    """
    top = name.partition(".")[0]
    if top != "trackside" and top not in sys.stdlib_module_names:
        return False
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return True
    return spec.origin not in ("built-in", "frozen") and type(spec.loader).__name__ != "ExtensionFileLoader"


def _as_json(values: dict[str, str | float | bool | None]) -> str:
    return "{" + ",".join(f"{_quoted(name)}:{_value(value)}" for name, value in values.items()) + "}"


def _value(value: str | float | bool | None) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    # JSON has neither infinities nor NaN.
    return "null" if value != value or value in (float("inf"), -float("inf")) else repr(value)


def _quoted(text: str) -> str:
    parts = ['"']
    for sign in text:
        code = ord(sign)
        if 32 <= code < 127 and sign not in '"\\':
            parts.append(sign)
        elif code < 0x10000:
            parts.append(f"\\u{code:04x}")
        else:
            high, low = divmod(code - 0x10000, 0x400)
            parts.append(f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}")
    parts.append('"')
    return "".join(parts)


def _note(folder: str, what: str, error: BaseException) -> None:
    """Leave word for the launcher, in a file: it may be of any length, and the pipe full."""
    places = []
    frame = error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        places.append(f"{code.co_filename}:{frame.tb_lineno} in {code.co_name}")
        frame = frame.tb_next
    text = f"{what}: {type(error).__name__}: {error} ({'; '.join(places)})\n"
    try:
        file = _open(
            f"{folder}/trouble", posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND | posix.O_CLOEXEC, 0o600
        )
        _write(file, text.encode("utf-8", "backslashreplace"))
        _close(file)
    except OSError:
        pass
