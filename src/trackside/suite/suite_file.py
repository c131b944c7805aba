"""`trackside.toml`: named workloads and what is claimed of each; what is wrong is said by line and key."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from trackside.records.devices import gpu_index
from trackside.records.errors import TracksideError
from trackside.suite.toml_lines import key_on, line_of

__all__ = ["LEAST_ACCEPTED_DELTA", "SUITE_FILE", "Entry", "Suite", "find_suite", "load_suite"]

SUITE_FILE: Final = "trackside.toml"
ACCEPTED_FILE: Final = "trackside.accepted.json"

Mode = Literal["baseline", "accepted"]

_MAX_BYTES: Final = 1 << 20
# A name is printed, put into JUnit and given to --only.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_TABLES: Final = ("suite", "workload")

# What compare itself defaults to; a ratio to another program moves more from day to day than one to a
# baseline that is timed in the same quads.
_ACCEPTED_DELTA: Final = {"cpu": 0.05, "cuda": 0.02}
# Below these nothing could ever hold: what a ratio may move from one invocation to the next makes the
# interval of no change at all ±2.8 % wide on a CPU and ±0.84 % on a GPU (`_SESSION` in accepted.py).
LEAST_ACCEPTED_DELTA: Final = {"cpu": 0.03, "cuda": 0.01}
_BUDGET: Final = 60.0


@dataclass(frozen=True)
class Entry:
    """One thing to evaluate: a candidate against its baseline, or a file against its accepted record."""

    name: str
    mode: Mode
    baseline: Path
    """With an accepted record: the file itself."""
    candidate: Path
    """With an accepted record: the file itself."""
    reference: Path | None = None
    """With an accepted record: the file whose time is the unit."""
    device: str = "cpu"
    metric: str = "device"
    claim: str = "faster"
    budget: float = _BUDGET
    delta: float | None = None
    pairs: int | None = None
    threads: int | None = None
    build_timeout: float = 300.0

    def to_dict(self) -> dict[str, Any]:
        """For the child that evaluates it."""
        return {name: str(one) if isinstance(one, Path) else one for name, one in asdict(self).items()}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Entry:
        paths = {name: Path(given[name]) for name in ("baseline", "candidate", "reference") if given[name]}
        return cls(**{**given, **paths})

    @property
    def kind(self) -> str:
        return "cpu" if self.device == "cpu" else "cuda"

    @property
    def threshold(self) -> float | None:
        """The delta to go by; None leaves it to compare."""
        if self.delta is not None or self.mode == "baseline":
            return self.delta
        return _ACCEPTED_DELTA[self.kind]

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that it names, once."""
        named = (self.baseline, self.candidate, *(() if self.reference is None else (self.reference,)))
        return tuple(dict.fromkeys(named))


@dataclass(frozen=True)
class Suite:
    """A suite file that was read and found right."""

    path: Path
    entries: tuple[Entry, ...]
    accepted: Path
    """Where accepted ratios are kept."""

    @property
    def folder(self) -> Path:
        return self.path.parent


def find_suite(start: Path | None = None) -> Path:
    """The nearest suite file: in this folder, or in one above it.

    Raises:
        TracksideError: kind `not-found`, when there is none.
    """
    folder = (start or Path.cwd()).absolute()
    for place in (folder, *folder.parents):
        if (place / SUITE_FILE).is_file():
            return place / SUITE_FILE
    raise TracksideError(
        "not-found",
        f"found no {SUITE_FILE} in {folder} or above it",
        f"write one, as docs/suite.md shows, or name it: --suite PATH/{SUITE_FILE}",
    )


def load_suite(path: Path) -> Suite:
    """Read a suite file; nothing that it names is run.

    Raises:
        TracksideError: kind `not-found` or `usage`; the message has the line and the key.
    """
    return _Reader(path.absolute()).suite()


_TEXT: Final = ("device", "metric", "claim")
_NUMBERS: Final = ("budget", "delta", "pairs", "threads", "build_timeout")
_SHARED: Final = (*_TEXT, *_NUMBERS)
_WORKLOAD_KEYS: Final = ("baseline", "candidate", "file", "reference", *_SHARED)
_SUITE_KEYS: Final = ("accepted", *_SHARED)
_ONLY_BASELINE: Final = ("metric", "claim")
_CHOICES: Final = {"metric": ("device", "wall"), "claim": ("faster", "not-slower")}
# As `compare` has them; here too, so that the line can be named before anything runs.
_LEAST: Final = {"budget": 5.0, "pairs": 2, "threads": 1}
_MOST: Final = {"budget": 86_400.0, "pairs": 1000, "build_timeout": 86_400.0, "threads": 4096}
_WHOLE: Final = ("pairs", "threads")


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._source = ""

    def suite(self) -> Suite:
        document = self._document()
        self._known((), document, _TABLES)
        shared = self._table(("suite",), document.get("suite", {}))
        self._known(("suite",), shared, _SUITE_KEYS)
        defaults = self._options(("suite",), shared)
        accepted = shared.get("accepted", ACCEPTED_FILE)
        if not isinstance(accepted, str) or not accepted:
            self._wrong(("suite", "accepted"), accepted, "the name of a file")
        tables = self._table(("workload",), document.get("workload", {}))
        if not tables:
            self._fail(None, "found no workload", "add a table such as [workload.softmax]")
        entries: list[Entry] = []
        for name, table in tables.items():
            for entry in self._entries(name, table, defaults):
                if any(entry.name == other.name for other in entries):
                    self._fail(
                        self._line(("workload", name, "candidate")),
                        f"found `{entry.name}` twice: of several candidates each is called by its file",
                        "rename one",
                    )
                entries.append(entry)
        return Suite(self._path, tuple(entries), self._path.parent / accepted)

    def _document(self) -> dict[str, Any]:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            raise TracksideError(
                "not-found", f"found no suite file at {self._path}", "write one, or name another: --suite"
            ) from None
        except OSError as error:
            self._fail(None, f"cannot read it: {error.strerror}", "make it a readable file")
        if len(data) > _MAX_BYTES:
            self._fail(None, f"found {len(data) >> 20} MiB", "it should have a few kilobytes: check the path")
        try:
            self._source = data.decode("utf-8-sig")
            return tomllib.loads(self._source)
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            self._fail(line, f"found a byte that is no UTF-8, 0x{data[error.start]:02x}", "save it as UTF-8")
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            found = re.search(r"\(at line (\d+), column \d+\)|at end of document", str(error))
            what = re.sub(r"\s*\(at .*\)$", "", str(error))
            if found is None:
                self._fail(None, f"found no valid TOML: {what}", "write it anew")
            # What is not closed is missed at the end.
            place = int(found[1] or max(1, len(self._source.splitlines())))
            key = key_on(self._source, place)
            at = f" at `{key}`" if key else ""
            self._fail(place, f"found no valid TOML{at}: {what}", "correct that line")

    # -- tables and values -------------------------------------------------------------------------

    def _entries(self, name: str, table: Any, defaults: Mapping[str, Any]) -> list[Entry]:
        at = ("workload", name)
        if not _NAME.fullmatch(name):
            self._fail(
                self._line(at),
                f"found the name {name!r}",
                "letters, digits, dots, hyphens and underscores, at most 80",
            )
        table = self._table(at, table)
        self._known(at, table, _WORKLOAD_KEYS)
        own = self._options(at, table)
        if "file" in table or "reference" in table:
            return [self._accepted_entry(at, table, defaults, own)]
        if "candidate" not in table or "baseline" not in table:
            missing = "baseline" if "baseline" not in table else "candidate"
            self._fail(
                self._line(at),
                f"found no `{missing}` in [workload.{name}]",
                "give `baseline` and `candidate`, or `file` and `reference` for an accepted record",
            )
        baseline = self._file((*at, "baseline"), table["baseline"])
        given = table["candidate"]
        candidates = given if isinstance(given, list) else [given]
        if not candidates:
            self._wrong((*at, "candidate"), given, "a file, or a list of files")
        paths = [self._file((*at, "candidate"), one) for one in candidates]
        options = {**defaults, **own}
        return [
            Entry(name if len(paths) == 1 else f"{name}.{path.stem}", "baseline", baseline, path, **options)
            for path in paths
        ]

    def _accepted_entry(
        self, at: tuple[str, ...], table: dict[str, Any], defaults: Mapping[str, Any], own: dict[str, Any]
    ) -> Entry:
        for key in ("baseline", "candidate"):
            if key in table:
                self._fail(
                    self._line((*at, key)),
                    f"found `{key}` beside `file` or `reference` in [workload.{at[1]}]",
                    "either `baseline` and `candidate`, or `file` and `reference`",
                )
        for key in ("file", "reference"):
            if key not in table:
                self._fail(
                    self._line(at),
                    f"found no `{key}` in [workload.{at[1]}]",
                    "an accepted record needs `file` and `reference`, the file whose time is the unit",
                )
        for key in _ONLY_BASELINE:
            if key in own:
                self._fail(
                    self._line((*at, key)),
                    f"found `{key}` in [workload.{at[1]}], which has an accepted record",
                    f"leave it out: `{key}` is for a candidate and its baseline",
                )
        file, reference = (self._file((*at, key), table[key]) for key in ("file", "reference"))
        if file.resolve() == reference.resolve():
            self._fail(
                self._line((*at, "reference")),
                "found the same file as `file` and `reference`: their ratio is 1 whatever changes",
                "another file, which stays as it is",
            )
        options = {k: v for k, v in {**defaults, **own}.items() if k not in _ONLY_BASELINE}
        entry = Entry(at[1], "accepted", file, file, reference, **options)
        least = LEAST_ACCEPTED_DELTA[entry.kind]
        if entry.delta is not None and entry.delta < least:
            place = (*at, "delta") if "delta" in own else ("suite", "delta")
            self._fail(
                self._line(place),
                f"found {'.'.join(place)} = {entry.delta:g}, less than an accepted record on "
                f"{entry.device} can tell",
                f"needed in [workload.{at[1]}]: a `delta` of {least:g} at least, or a `baseline`",
            )
        return entry

    def _options(self, at: tuple[str, ...], table: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a table gives, checked."""
        found: dict[str, Any] = {}
        for key in _SHARED:
            if key not in table:
                continue
            value = table[key]
            if key in _TEXT:
                if not isinstance(value, str):
                    self._wrong((*at, key), value, "text in quotes")
                if key in _CHOICES and value not in _CHOICES[key]:
                    self._wrong((*at, key), value, " or ".join(f'"{one}"' for one in _CHOICES[key]))
                if key == "device":
                    self._device((*at, key), value)
                found[key] = value
            else:
                found[key] = self._number((*at, key), key, value)
        return found

    def _device(self, at: tuple[str, ...], value: str) -> None:
        try:
            gpu_index(value)
        except TracksideError:
            self._wrong(at, value, '"cpu", "cuda" or "cuda:N"')

    def _number(self, at: tuple[str, ...], key: str, value: Any) -> float | int:
        whole = key in _WHOLE
        is_number = type(value) is int or (type(value) is float and not whole and math.isfinite(value))
        if not is_number:
            self._wrong(at, value, "a whole number" if whole else "a number")
        low, high = _LEAST.get(key, 0), _MOST.get(key, 1.0)
        inside = low <= value <= high if key in _LEAST else low < value < high or value == high > 1
        if not inside:
            needed = "a fraction such as 0.02" if key == "delta" else f"{low:g} to {high:g}"
            self._wrong(at, value, needed)
        number: float | int = value
        return number if whole else float(number)

    def _file(self, at: tuple[str, ...], value: Any) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            self._wrong(at, value, "the name of a file")
        path = self._path.parent / value
        # A task folder of GPU MODE is one too.
        if not path.exists():
            self._fail(
                self._line(at),
                f"found no file {value} ({'.'.join(at)})",
                f"paths start at the suite's folder, {self._path.parent}",
            )
        if not (path.is_file() or path.is_dir()):
            # Reading a pipe waits for ever, and a device has no end.
            self._fail(
                self._line(at),
                f"found {value} ({'.'.join(at)}), which is a pipe or a device",
                "a Python file, or a task folder",
            )
        return path

    def _table(self, at: tuple[str, ...], value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._wrong(at, value, f"a table: [{'.'.join(at)}]")
        return dict(value)

    def _known(self, at: tuple[str, ...], table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key in known:
                continue
            where = f" in [{'.'.join(at)}]" if at else ""
            if key in ("tolerance", "rtol", "atol"):
                remedy = "`tolerance` stands in the baseline's file, which is the authority on it"
            else:
                near = difflib.get_close_matches(key, known, 1, 0.5)
                remedy = f"did you mean `{near[0]}`?" if near else f"one of: {', '.join(known)}"
            self._fail(self._line((*at, key)), f"found the unknown key `{key}`{where}", remedy)

    def _line(self, at: tuple[str, ...]) -> int | None:
        return line_of(self._source, at)

    def _wrong(self, at: tuple[str, ...], value: Any, needed: str) -> NoReturn:
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        self._fail(self._line(at), f"found {'.'.join(at)} = {shown}", f"needed: {needed}")

    def _fail(self, line: int | None, message: str, remedy: str) -> NoReturn:
        place = f"{self._path.name}:{line}" if line else self._path.name
        raise TracksideError("usage", f"{place}: {message}", remedy)
