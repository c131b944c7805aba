"""Copies results into the repository without the paths of the machine that they come from.

`python -m benchmarks.publish FOLDER TARGET`. Raw records lose their seals with that, since a seal covers the
paths too; no figure changes.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.context import RESULTS

__all__ = ["main", "publish"]

# Absolute paths of a workload, a checkout or a store: the last two parts say what it was.
_PATH = re.compile(r"/(?:[^/\s\"':]+/)+([^/\s\"':]+/[^/\s\"':]+)")
_WHERE = ("folder", "store", "root", "cwd")


def publish(folder: Path, target: Path) -> int:
    """Copy every JSON file, compressed or not; returns how many."""
    count = 0
    for path in sorted(folder.rglob("*.json*")):
        packed = path.suffix == ".gz"
        document = json.loads(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
        cleaned = _without_paths(document)
        if packed:
            cleaned["record"].pop("seal", None)
        text = json.dumps(cleaned, indent=None if packed else 1, ensure_ascii=False) + "\n"
        out = target / path.relative_to(folder)
        out.parent.mkdir(parents=True, exist_ok=True)
        # Without a time stamp, so that copying twice gives the same bytes.
        out.write_bytes(gzip.compress(text.encode(), 9, mtime=0) if packed else text.encode())
        count += 1
    return count


def _without_paths(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {_without_paths(k): _without_paths(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_paths(entry, key) for entry in value]
    if isinstance(value, str):
        return "" if key in _WHERE and value.startswith("/") else _PATH.sub(r"\1", value)
    return value


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    count = publish(Path(arguments[0]), RESULTS / arguments[1])
    print(f"{count} files in {RESULTS / arguments[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
