"""Small programs on output, libraries and processes, where a stand-in for `python` could differ."""

from tests.profiling.programs import Case, script

__all__ = ["WORK"]

_POOL = """
import multiprocessing, sys

class Item:
    def __init__(self, value): self.value = value
    def __eq__(self, other): return self.value == other.value

def double(item): return Item(2 * item.value), __name__ in ("__main__", "__mp_main__")

if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    with context.Pool(2) as pool:
        print([(item.value, there) for item, there in pool.map(double, [Item(1), Item(2)])])
    process = context.Process(target=sys.exit, args=(5,))
    process.start(); process.join()
    print(process.exitcode)
"""

_SHADOWS = (
    "json",
    "random",
    "threading",
    "struct",
    "socket",
    "logging",
    "uuid",
    "trackside",
    "nothing",
    "greedy",
)

WORK = (
    # Input, output
    script(
        "binary output",
        "import os, sys\nsys.stdout.buffer.write(bytes(range(256)) * 99)\nos.write(2, b'\\xff\\0\\n')\n",
    ),
    script(
        "stdin",
        "import sys\nprint(ascii(sys.stdin.read()), sys.stdin.fileno())\n",
        stdin=b"line\nf\xc3\xa9\xff\n",
    ),
    script("input and prompt", "print(input('prompt> '))\n", stdin=b"answer\n"),
    script("full device", "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('x')\n"),
    script("closed stdout", "import os\nos.close(1)\nprint('x')\n", 120),
    # What libraries look at
    script(
        "pickles of classes in main",
        """
        import dataclasses, enum, inspect, pickle, typing
        @dataclasses.dataclass
        class Point:
            x: "int"
            other: "Point | None" = None
        class Colour(enum.Enum):
            RED = 1
        print(pickle.loads(pickle.dumps([Point(1, Point(2)), Colour.RED])), pickle.dumps(Point(1)))
        print(inspect.getsource(Point), typing.get_type_hints(Point), inspect.getmodule(Point).__name__)
        """,
    ),
    script(
        "recursion",
        """
        import sys
        def depth(n=1):
            try:
                return depth(n + 1)
            except RecursionError:
                return n
        print(depth())
        sys.setrecursionlimit(300)
        print(depth())
        def forever(): forever()
        forever()
        """,
        1,
    ),
    script(
        "warnings",
        """
        import warnings
        def f(level): warnings.warn("look", UserWarning, stacklevel=level)
        for level in (1, 2, 3, 9):
            f(level)
        warnings.warn("old", DeprecationWarning)
        print("\\d")
        """,
    ),
    script("stacks", "import inspect, traceback\ntraceback.print_stack()\nprint(len(inspect.stack(0)))\n"),
    script(
        "tracing",
        """
        import sys
        def trace(frame, event, argument):
            print(event, frame.f_code.co_name)
            return trace
        sys.settrace(trace); sys.setprofile(lambda frame, event, argument: None)
        def f(): return 1
        f()
        """,
    ),
    Case(
        "own modules of known names",
        {
            "prog.py": f"for name in {_SHADOWS}:\n    print(name, vars(__import__(name)).get('WHOSE'))\n",
            **{f"{name}.py": "WHOSE = 'the program'\n" for name in _SHADOWS},
        },
    ),
    Case(
        "own types module",
        {"types.py": "WHOSE = 'the program'\n", "prog.py": "import types\nprint(types.WHOSE)\nimport enum\n"},
    ),
    Case(
        "libraries behind an own module",
        {
            "prog.py": "import json, importlib.machinery, collections.abc, xml.dom, concurrent.futures\n"
            "print(json.dumps([1]), importlib.machinery.SOURCE_SUFFIXES, collections.abc.Mapping)\n",
            "random.py": "raise ImportError('the random module of the program')\n",
        },
    ),
    Case(
        "sitecustomize of the environment",
        {
            "site/sitecustomize.py": "import atexit, os, sys\nprint(__name__, __file__, sys.path)\n"
            "print(os.environ)\natexit.register(print, 'site is last')\n",
            "prog.py": "import sys\nprint(sys.modules['sitecustomize'].__file__)\n",
        },
        environment={"PYTHONPATH": "site"},
    ),
    *(
        Case(
            f"sitecustomize with {what}",
            {"site/sitecustomize.py": what, "prog.py": "print('runs')\n"},
            environment={"PYTHONPATH": "site"},
        )
        for what in (
            "1 / 0",
            "import sitecustomize\nprint(vars(sitecustomize).keys())",
        )
    ),
    Case(
        "sitecustomize beside the script",
        {
            "sitecustomize.py": "print('not at the start')\n",
            "prog.py": "print('first')\nimport sitecustomize\n",
        },
    ),
    # Processes
    *(
        Case(f"pool by {method}", {"prog.py": _POOL.replace("{method}", method)})
        for method in ("fork", "spawn", "forkserver")
    ),
    Case(
        "spawn from a module",
        {"app/__init__.py": "", "app/run.py": _POOL.replace("{method}", "spawn")},
        ("-m", "app.run"),
    ),
    script(
        "fork that ends as a program does",
        """
        import atexit, os, sys
        atexit.register(lambda: print("handler", flush=True))
        if os.fork() == 0:
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """,
    ),
    script(
        "fork that outlives it",
        """
        import os, time
        parent = os.getpid()
        if os.fork() == 0:
            while os.getppid() == parent:
                time.sleep(0.01)
            open("orphan.part", "w").write(f"child of {os.getppid()} now")
            os.rename("orphan.part", "orphan")
            os._exit(0)
        print("gone first")
        """,
    ),
    script(
        "closing all descriptors",
        """
        import os
        os.closerange(3, 4096)
        files = [open(f"file{n}", "w") for n in range(20)]
        print([file.fileno() for file in files])
        for file in files:
            file.write("mine")
        """,
    ),
    script(
        "exec of another program",
        "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'import sys; print(sys.path)'])\n",
    ),
    script(
        "functions replaced that we use",
        """
        import builtins, os, posix, sys
        def fail(*arguments, **options): raise RuntimeError("not yours")
        builtins.open = builtins.__import__ = os.open = os.write = posix.open = posix.getpid = fail
        sys.modules.clear()
        sys.path = None
        sys.stdout.write("done")
        """,
    ),
)
