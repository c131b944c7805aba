"""Files that a comparison of commands had moved out of the way when all its processes were killed at once.

Its host puts them back whatever happens, unless it is killed itself. Then the next comparison with the same
output does, which would move what a command left there out of the way as if it were the user's.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from trackside.store.files import store_errors

__all__ = ["put_back_left"]

_HOST = b"trackside.comparison.command_host"


def put_back_left(folder: Path, names: Iterable[str]) -> list[str]:
    """Gives such files their names again; returns a sentence for each.

    What has the name now may be the user's own by now: it is kept beside.

    Args:
        folder: where the commands run.
        names: the outputs, relative to it.

    Raises:
        TracksideError: kind `store`, when the disk refuses.
    """
    said = []
    for name in names:
        file = folder / name
        for hidden in _left(file):
            with store_errors(file, "put back"):
                kept = ""
                if os.path.lexists(file):
                    beside = _free_name(file)
                    file.rename(beside)
                    kept = f"; what had its name is kept as {beside.name}"
                hidden.rename(file)
            said.append(f"{name} is put back: a comparison that was killed had moved it out of the way{kept}")
    return said


def _left(file: Path) -> list[Path]:
    """What dead hosts hid of this file, the newest first: it was put there by an earlier one's commands."""
    pattern = re.compile(re.escape(f".{file.name}.trackside-") + r"(\d+)")
    try:
        names = os.listdir(file.parent)
    except OSError:
        return []
    matches = [match for name in names if (match := pattern.fullmatch(name))]
    left = [file.with_name(match[0]) for match in matches if not _is_host(int(match[1]))]
    return sorted(left, key=lambda path: path.lstat().st_ctime_ns, reverse=True)


def _is_host(pid: int) -> bool:
    try:
        return _HOST in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _free_name(file: Path) -> Path:
    number = 1
    while os.path.lexists(beside := file.with_name(f"{file.name}.left-{number}")):
        number += 1
    return beside
