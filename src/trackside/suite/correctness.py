"""The child that checks a candidate without timing it, niced: what `watch` runs on every save."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import orjson

from trackside.comparison.trial import Options, run_trial
from trackside.suite.narrating import narrate

__all__ = ["main"]

# The person at the keyboard, and a measurement under way, come first.
_NICENESS = 15


def main(argv: list[str]) -> int:
    """Options as JSON in, the compare record out; nothing is timed, so its verdict is at best undecided."""
    os.nice(_NICENESS)
    given = orjson.loads(argv[0])
    paths = {name: Path(given[name]) for name in ("baseline", "candidate", "store")}
    options = Options(**given | paths, checks_only=True)
    return narrate(lambda progress: run_trial(options, progress).to_dict())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
