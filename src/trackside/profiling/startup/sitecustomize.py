"""Python imports this before a profiled program's first line: the launcher put this folder on PYTHONPATH.

It takes away every trace of that, lets the sitecustomize that Python would have found run, and hands over to
`trackside.profiling.inside`. Only modules that every interpreter has loaded by now are used, since a program
may have modules of its own under any other name.
"""

import os
import sys


def _take_away_traces() -> str | None:
    """Make environment and path what they would be; the hand-over folder, if we are meant."""
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here in entries:
        entries.remove(here)
        if entries:
            os.environ["PYTHONPATH"] = os.pathsep.join(entries)
        else:
            del os.environ["PYTHONPATH"]
    launcher, _, folder = os.environ.pop("TRACKSIDE_INSIDE", "").partition(":")
    # Another interpreter that one of the environment's own start-up files started would have another parent.
    # Under a tool that starts the program it is the tool.
    return folder if launcher in (str(os.getppid()), "tool") else None


def _begin(folder: str) -> None:
    before, finders = dict(sys.modules), dict(sys.path_importer_cache)
    profiling = os.path.dirname(os.path.dirname(__file__))
    for name in before:
        if name == "trackside" or name.startswith("trackside."):
            del sys.modules[name]
    # Bare packages: the launcher's own copy must be found, wherever it lies, and the path stays as it is.
    for name, place in (("trackside", os.path.dirname(profiling)), ("trackside.profiling", profiling)):
        package = sys.modules[name] = type(sys)(name)
        package.__path__ = [place]
    try:
        from trackside.profiling import inside

        inside.begin(folder, before, finders)
    except Exception:
        # The program runs without us; the launcher says so, since nothing told it that we began.
        for name in [name for name in sys.modules if name not in before]:
            del sys.modules[name]
        sys.modules.update(before)


_folder = _take_away_traces()
sys.modules.pop(__name__, None)
try:
    # What this raises, and most often that there is none, is for Python's own start-up to deal with.
    __import__(__name__)
finally:
    if _folder is not None:
        _begin(_folder)
