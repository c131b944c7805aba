"""Runs programs under the line log: `python -m tests.profiling.line_driver OUT PROGRAM…`.

With the standard library only, so that any interpreter can run it.
"""

import pickle
import sys
from collections.abc import Callable
from pathlib import Path

from tests.profiling import hand_timer, line_programs
from tests.profiling.hand_timer import Waited

from trackside.profiling.line_events import LineEvents
from trackside.profiling.line_log import LineLog

__all__ = ["Run", "is_user", "run", "tries"]

Run = tuple[LineEvents, list[Waited], list[Waited]]
"""A program's log, what was timed by hand meanwhile, and what is timed by hand when nothing is logged."""


def is_user(file: str) -> bool:
    return file in (line_programs.__file__, "<source of the user>")


def tries(name: str) -> int:
    """How often to run a program, so that one run is quiet: on a busy machine a short loop hardly ever is."""
    return 10 if name == "hot_loop" else 4


def run(name: str) -> Run:
    program: Callable[..., object] = getattr(line_programs, name)
    plain: list[Waited] = []
    if name == "hot_loop":
        hand_timer.waits.clear()
        program()
        plain = list(hand_timer.waits)
    log = LineLog(is_user)
    got: list[LineEvents] = []
    hand_timer.waits.clear()
    if name == "running_already":
        program(log.start, lambda: got.append(log.stop()))
    else:
        log.start()
        program()
        got.append(log.stop())
    return got[0], list(hand_timer.waits), plain


def main() -> None:
    out, *names = sys.argv[1:]
    runs = {name: [run(name) for _ in range(tries(name))] for name in names}
    Path(out).write_bytes(pickle.dumps(runs))


if __name__ == "__main__":
    main()
