"""Small programs on how one is found, started and ended, where a stand-in for `python` could differ."""

import io
import os
import zipfile
from dataclasses import dataclass, field
from textwrap import dedent

__all__ = ["STARTS_AND_ENDS", "Case", "script"]


@dataclass(frozen=True)
class Case:
    """Files, and the command line that runs them behind `python`."""

    name: str
    files: dict[str, str | bytes]
    words: tuple[str, ...] = ("prog.py",)
    options: tuple[str, ...] = ()
    stdin: bytes = b""
    environment: dict[str, str] = field(default_factory=dict)
    symlinks: dict[str, str] = field(default_factory=dict)
    code: int | None = None
    """What it ends with, where that is the point."""


def script(name: str, source: str, code: int | None = None, **more: object) -> Case:
    return Case(name, {"prog.py": dedent(source)}, code=code, **more)  # type: ignore[arg-type]


def _zip(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, source in files.items():
            archive.writestr(zipfile.ZipInfo(name.replace("_py", ".py")), source)
    return buffer.getvalue()


_MAIN = """
import sys
print(sorted(globals()))
for name in ("__name__", "__file__", "__spec__", "__package__", "__cached__", "__doc__", "__annotations__"):
    print(name, globals().get(name, "not there"))
print(type(__loader__).__name__, __builtins__ is sys.modules["builtins"])
print(sys.modules["__main__"].__dict__ is globals(), sys._getframe().f_back is None)
print(sys.argv, sys.orig_argv, sys.path)
"""

_STATE = """
import sys
print(sys.flags, sys.warnoptions, sys._xoptions, sys.getrecursionlimit(), sys.getswitchinterval())
print(sys.path, sys.meta_path, sys.path_hooks, sorted(sys.path_importer_cache))
print(sys.gettrace(), sys.getprofile(), sys.excepthook is sys.__excepthook__)
print(sys.executable, sys.prefix, sys.base_prefix, sys.dont_write_bytecode, sys.pycache_prefix)
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.isatty())
import os
print(os.getcwd(), os.umask(0o22), os.nice(0), os.sched_getaffinity(0))
print(os.getpgid(0) == os.getpgid(os.getppid()), os.getsid(0) == os.getsid(os.getppid()))
print("threads", len(os.listdir("/proc/self/task")), "first file", open(__file__).fileno())
import gc, signal, warnings, builtins, threading, resource, locale
print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks)
print([getattr(signal.getsignal(number), "name", "python") for number in sorted(signal.valid_signals())])
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(signal.getitimer(signal.ITIMER_REAL), signal.set_wakeup_fd(-1))
print(warnings.filters, sorted(dir(builtins)))
print([thread.name for thread in threading.enumerate()], threading.gettrace(), threading.getprofile())
print([resource.getrlimit(limit) for name, limit in vars(resource).items() if name.startswith("RLIMIT")])
print(locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(False), sys.getfilesystemencodeerrors())
"""

_ENVIRONMENT = """
import os, subprocess, sys
print(dict(os.environ), dict(os.environb))
import posix
print(posix.environ is os.environb._data, flush=True)
subprocess.run(["env"])
child = "import os, sys; print(sys.path, sys.flags, sys._xoptions, dict(os.environ), sorted(sys.modules))"
subprocess.run([sys.executable, "-c", child])
"""

_DESCRIPTORS = """
import os, subprocess
first = open(__file__)
print(first.fileno(), sorted(os.listdir("/proc/self/fd")), flush=True)
subprocess.run(["ls", "/proc/self/fd"], close_fds=False)
if os.fork() == 0:
    print(sorted(os.listdir("/proc/self/fd")), flush=True)
    os._exit(0)
os.wait()
"""

_MODULE_STATE = """
import sys
print(__name__, __package__, __spec__.name, __spec__.origin, __file__, sys.argv, sys.path)
from . import other
from .other import WORD
print(WORD, other.__name__, sys.modules["__main__"].__dict__ is globals())
print(sys._getframe().f_back.f_code.co_name)
raise SystemExit(4)
"""

_PACKAGE: dict[str, str | bytes] = {
    "package/__init__.py": "print('package', __name__)\n",
    "package/other.py": "WORD = 'relative'\n",
    "package/module.py": _MODULE_STATE,
    "package/__main__.py": _MODULE_STATE,
    "package/failing.py": "def f():\n    raise KeyError('here')\nf()\n",
}

_NOT_UTF8 = os.fsdecode(b"caf\xe9.py")

STARTS_AND_ENDS = (
    script("main module", _MAIN, words=("prog.py", "--lr", "0.1", "", "a b", "--", "-m", "\udce9")),
    script("main module with annotations", "x: int = 1\n" + _MAIN),
    script("state of the interpreter", _STATE),
    *(
        script(f"state with {' '.join(options)}", _STATE, options=options)
        for options in [
            ("-u", "-OO", "-W", "error", "-X", "dev"),
            ("-PsB", "-X", "utf8=0", "-X", "frozen_modules=off"),
        ]
    ),
    script("state with PYTHONSAFEPATH", _STATE, environment={"PYTHONSAFEPATH": "1"}),
    script("state in the C locale", _STATE, environment={"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"}),
    script("environment", _ENVIRONMENT),
    script("environment with a locale", _ENVIRONMENT, environment={"LC_CTYPE": "C.UTF-8", "LANG": "C"}),
    script("environment with an empty path", _ENVIRONMENT, environment={"PYTHONPATH": ""}),
    script("environment that is no text", _ENVIRONMENT, environment={"ODD": "\udcff", "PYTHONPATH": ":x::"}),
    script("open files", _DESCRIPTORS),
    # Files and names
    Case("no such file", {}, ("nothing-here.py",), code=2),
    Case("empty script", {"prog.py": ""}),
    Case("name with spaces", {"a b/c d.py": _MAIN}, ("a b/c d.py",)),
    Case("name that is no text", {_NOT_UTF8: _MAIN}, (_NOT_UTF8,)),
    Case("name without a suffix", {"train": _MAIN}, ("./train",)),
    Case(
        "symlink",
        {"far/prog.py": _MAIN, "far/near.py": ""},
        ("link.py",),
        symlinks={"link.py": "far/prog.py"},
    ),
    Case("relative to a parent", {"a/prog.py": _MAIN}, ("a/../a/prog.py",)),
    Case(
        "folder",
        {"app/__main__.py": _MAIN + "import near\n", "app/near.py": "print(__file__)\n"},
        ("app", "x"),
    ),
    Case("folder without a main", {"app/near.py": ""}, ("app",), code=1),
    Case(
        "zip",
        {"app.zip": _zip(__main___py=_MAIN + "import near\nnear.f()\n", near_py="def f(): 1 / 0\n")},
        ("app.zip",),
    ),
    Case("from stdin", {}, ("-", "a"), stdin=b"import sys\nprint(__name__, sys.argv, sys.path[0])\n1/0\n"),
    Case(
        "latin-1 with a cookie",
        {"prog.py": b"# -*- coding: latin-1 -*-\nprint(ascii('caf\xe9'))\n1/0 # \xe9\n"},
    ),
    Case("undecodable", {"prog.py": b"print('caf\xe9')\n"}, code=1),
    Case("unknown encoding", {"prog.py": b"# coding: nonsense\n"}, code=1),
    Case("null bytes", {"prog.py": b"print(1)\0\n"}, code=1),
    Case("syntax error", {"prog.py": "def f(:\n    pass\n"}, code=1),
    Case("indentation error", {"prog.py": "if 1:\n\tpass\n        pass\n"}, code=1),
    script("names in annotations are looked up", "def f(x: undefined): pass\n", 1),
    Case(
        "chdir, then files by relative names",
        {
            "data/x": "found",
            "prog.py": dedent("""
        import os
        os.chdir("data")
        print(open("x").read(), os.path.exists(__file__), os.getcwd())
        open("written", "w").write("here")
        """),
        },
    ),
    # -m
    Case("module", _PACKAGE, ("-m", "package.module", "-m", "x"), code=4),
    Case("package", _PACKAGE, ("-m", "package", "a"), code=4),
    Case("module with -P", _PACKAGE, ("-m", "package"), options=("-P",), code=1),
    Case("module that fails", _PACKAGE, ("-m", "package.failing"), code=1),
    Case("no such module", {}, ("-m", "no.such.module"), code=1),
    Case(
        "another profiler",
        {"prog.py": "import sys\nprint(sys.getprofile() is not None, __name__)\n"},
        ("-m", "cProfile", "-o", "/dev/null", "prog.py"),
    ),
    # Ends
    script(
        "chained exceptions",
        """
        def f():
            raise ValueError("inner")
        try:
            f()
        except ValueError as error:
            error.add_note("a note")
            try:
                {}["x"]
            except KeyError:
                raise RuntimeError("outer") from error
        """,
        1,
    ),
    script(
        "exception group",
        """
        inner = ExceptionGroup("inner", [TypeError("x"), OSError(2, "no")])
        raise ExceptionGroup("several", [ValueError(1), inner])
        """,
        1,
    ),
    script(
        "excepthook",
        """
        import sys, traceback
        def hook(kind, error, where):
            print(kind, error, traceback.extract_tb(where), file=sys.stderr)
        sys.excepthook = hook
        1 / 0
        """,
        1,
    ),
    script("excepthook that fails", "import sys\nsys.excepthook = lambda *how: {}['no']\n1 / 0\n", 1),
    script("tracebacklimit", "import sys\nsys.tracebacklimit = 0\n1 / 0\n", 1),
    script("keyboard interrupt", "try:\n    1 / 0\nfinally:\n    raise KeyboardInterrupt('x')\n", -2),
    *(
        script(f"exit with {what}", f"import sys\nsys.exit({what})\n", code)
        for what, code in [
            ("", 0),
            ("3", 3),
            ("'text'", 1),
            ("-1", 255),
            ("(1, 2)", 1),
        ]
    ),
    script(
        "exit from a function",
        "def f():\n    try:\n        exit(6)\n    finally:\n        print('last')\nf()\n",
        6,
    ),
    script("_exit", "import os, atexit\natexit.register(print, 'no')\nprint('lost')\nos._exit(7)\n", 7),
    script(
        "exit in a thread",
        """
        import threading, sys
        thread = threading.Thread(target=sys.exit, args=(3,))
        thread.start(); thread.join()
        def fail(): raise ValueError("in a thread")
        threading.Thread(target=fail, name="T").start()
        """,
        0,
    ),
    script(
        "threads are waited for",
        """
        import threading, time
        def late():
            time.sleep(0.1)
            print("late")
        threading.Thread(target=late).start()
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        print("main is done")
        """,
    ),
    script(
        "order of exit handlers",
        """
        import atexit, sys, threading, time
        atexit.register(print, "first registered")
        def fail(): raise ValueError("in a handler")
        atexit.register(fail)
        atexit.register(print, "last registered")
        threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
        class Last:
            def __del__(self): print("deleted")
        kept = Last()
        raise SystemExit("message")
        """,
        1,
    ),
    *(
        script(
            f"killed by {name}",
            f"""
            import signal
            print("flushed", flush=True)
            print("not flushed", end="")
            signal.raise_signal(signal.{name})
            """,
            -number,
        )
        for name, number in [
            ("SIGKILL", 9),
            ("SIGTERM", 15),
            ("SIGSEGV", 11),
            ("SIGHUP", 1),
        ]
    ),
    script(
        "faulthandler",
        "import faulthandler, signal\nfaulthandler.enable()\n"
        "def f(): signal.raise_signal(signal.SIGSEGV)\nf()\n",
        -11,
    ),
    script(
        "own signal handlers",
        """
        import signal
        signal.signal(signal.SIGTERM, lambda *_: print("term"))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        """,
        -2,
    ),
)
