"""What a command leaves, and whether two commands left the same: byte by byte, or number by number."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import re
import shutil
import stat
import tempfile
import zipfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import numpy as np

__all__ = ["STDOUT", "Difference", "Output", "collect", "compare", "printed"]

STDOUT = "stdout"

_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_WHOLE = re.compile(rb"[-+]?\d+")
_SHOWN = 60


@dataclass(frozen=True)
class Output:
    """One thing that a run left, kept open: nothing that runs later can change it."""

    name: str
    file: IO[bytes]
    size: int
    sha256: str


@dataclass(frozen=True)
class Difference:
    """How two outputs of one name compare."""

    where: str | None
    """What is wrong and where; None when they agree."""
    relative: float
    """The largest relative difference between two numbers that were accepted as equal."""


def printed(file: IO[bytes]) -> Output:
    """What was printed into this file."""
    return _output(STDOUT, file)


def collect(name: str, path: Path) -> Output | None:
    """Take an output file away; None when there is none. What is not a plain file counts as none."""
    try:
        entry = path.lstat()
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    source: IO[bytes] = os.fdopen(descriptor, "rb")
    if stat.S_ISLNK(entry.st_mode) or entry.st_nlink > 1:
        # Under another name the same file may be rewritten by the next run; this one must not see that.
        kept = tempfile.TemporaryFile()  # noqa: SIM115 - handed on
        with source:
            shutil.copyfileobj(source, kept)
        source = kept
    path.unlink()
    return _output(name, source)


def _output(name: str, file: IO[bytes]) -> Output:
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    return Output(name, file, file.seek(0, os.SEEK_END), digest)


def compare(expected: Output, found: Output, rtol: float) -> Difference:
    """Whether `found` may stand for `expected`.

    Equal bytes do. So do arrays (.npy, .npz) of one dtype and shape, and text in which nothing but numbers
    differs, when every number agrees within `rtol`. Whole numbers must be equal: they count or name things.
    """
    if expected.sha256 == found.sha256:
        return Difference(None, 0.0)
    for output in (expected, found):
        output.file.seek(0)
    suffix = Path(expected.name).suffix
    if expected.name != STDOUT and suffix in (".npy", ".npz"):
        try:
            return _compare_arrays(_arrays(expected), _arrays(found), rtol)
        except (ValueError, OSError, EOFError, zipfile.BadZipFile):
            for output in (expected, found):
                output.file.seek(0)
    return _compare_lines(expected.file, found.file, rtol)


# -- text ----------------------------------------------------------------------------------------------------


def _compare_lines(expected: IO[bytes], found: IO[bytes], rtol: float) -> Difference:
    largest = 0.0
    offset = 0
    for number, (wanted, got) in enumerate(itertools.zip_longest(expected, found), start=1):
        if wanted is None or got is None:
            kept = number - 1
            more = "expected no more, found" if wanted is None else "expected one more, found none:"
            return Difference(f"after {kept} line(s): {more} {_shown(wanted or got)}", largest)
        if wanted != got:
            close = _close_lines(wanted, got, rtol)
            if close is None:
                return Difference(_place(number, offset, wanted, got), largest)
            largest = max(largest, close)
        offset += len(wanted)
    return Difference(None, largest)


def _place(number: int, offset: int, wanted: bytes, got: bytes) -> str:
    try:
        wanted.decode(), got.decode()
    except UnicodeDecodeError:
        both = min(len(wanted), len(got))
        unlike = np.frombuffer(wanted, np.uint8, both) != np.frombuffer(got, np.uint8, both)
        first = int(unlike.argmax()) if unlike.any() else both
        pair = [f"0x{side[first]:02x}" if first < len(side) else "the end" for side in (wanted, got)]
        return f"byte {offset + first}: expected {pair[0]}, found {pair[1]}"
    return f"line {number}: expected {_shown(wanted)}, found {_shown(got)}"


def _close_lines(wanted: bytes, got: bytes, rtol: float) -> float | None:
    """The largest relative difference of the numbers in two lines; None when the lines do not agree."""
    if b"\0" in wanted or _NUMBER.split(wanted) != _NUMBER.split(got):
        return None
    largest = 0.0
    for a, b in zip(_NUMBER.findall(wanted), _NUMBER.findall(got), strict=True):
        x, y = float(a), float(b)
        # A whole number counts or names something, however the other side writes it; and two numbers beyond
        # what a float holds are not equal for that.
        if _WHOLE.fullmatch(a) or math.isinf(x) or math.isinf(y):
            if Decimal(a.decode()) != Decimal(b.decode()):
                return None
            continue
        if x == y:
            continue
        relative = abs(x - y) / max(abs(x), abs(y))
        if not relative <= rtol:
            return None
        largest = max(largest, relative)
    return largest


def _shown(line: bytes) -> str:
    text = line.decode(errors="backslashreplace").rstrip("\n")
    return f"`{text[:_SHOWN]}{'…' if len(text) > _SHOWN else ''}`"


# -- arrays --------------------------------------------------------------------------------------------------


def _arrays(output: Output) -> dict[str, np.ndarray[Any, Any]]:
    loaded = np.load(output.file, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return {"": loaded}
    return {name: loaded[name] for name in loaded.files}


def _compare_arrays(
    expected: dict[str, np.ndarray[Any, Any]], found: dict[str, np.ndarray[Any, Any]], rtol: float
) -> Difference:
    if expected.keys() != found.keys():
        return Difference(f"expected arrays {sorted(expected)}, found {sorted(found)}", 0.0)
    largest = 0.0
    for name, wanted in expected.items():
        got = found[name]
        label = f"array {name}, " if name else ""
        if (wanted.dtype, wanted.shape) != (got.dtype, got.shape):
            return Difference(
                f"{label}expected {wanted.dtype} {wanted.shape}, found {got.dtype} {got.shape}", largest
            )
        if wanted.dtype.kind not in "fc":
            wrong = np.asarray(wanted != got)
            relative = 0.0
        else:
            wrong, relative = _far_apart(wanted, got, rtol)
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            place = f"element {list(index)}" if index else "the value"
            return Difference(f"{label}{place}: expected {wanted[index]!s}, found {got[index]!s}", largest)
        largest = max(largest, relative)
    return Difference(None, largest)


def _far_apart(
    wanted: np.ndarray[Any, Any], got: np.ndarray[Any, Any], rtol: float
) -> tuple[np.ndarray[Any, Any], float]:
    same = (wanted == got) | (np.isnan(wanted) & np.isnan(got))
    with np.errstate(all="ignore"):
        # In the widest type at hand: half-precision differences of half-precision numbers round to nothing.
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        a, b = wanted.astype(wide), got.astype(wide)
        relative = np.where(same, 0.0, np.abs(a - b) / np.maximum(np.abs(a), np.abs(b)))
    wrong = ~same & ~(relative <= rtol)
    accepted = relative[~wrong]
    worst = float(accepted.max()) if accepted.size else 0.0
    return wrong, worst if math.isfinite(worst) else 0.0
