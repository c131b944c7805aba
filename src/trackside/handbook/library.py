"""Documents of the user's own: found in folders, read, and split into passages that a search can point at."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
import stat
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

__all__ = [
    "PDF_INSTALL",
    "SUFFIXES",
    "DocumentKind",
    "Found",
    "Passage",
    "PdfReaderMissing",
    "Refusal",
    "Source",
    "find_documents",
    "load",
    "modified_ns",
    "split",
]

DocumentKind = Literal["markdown", "text", "pdf"]

SUFFIXES: Final[dict[str, DocumentKind]] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".txt": "text",
    ".text": "text",
    ".rst": "text",
    ".pdf": "pdf",
}
"""What is taken from a folder. A file that is named itself may be called anything."""

PDF_INSTALL: Final = "pip install 'trackside[pdf]'"

# Books have a few megabytes of text; what is larger is data or a log, and would bury every other hit.
_MOST_BYTES: Final[dict[DocumentKind, int]] = {"markdown": 64 << 20, "text": 64 << 20, "pdf": 512 << 20}

# What the kernel makes up as it is read: no documents, and reading some of it waits for ever.
_KERNEL_FOLDERS: Final = (Path("/proc"), Path("/sys"))

# About a printed page: long enough to hold a thought, short enough that its place says where to look.
_PASSAGE_CHARACTERS: Final = 2_000

# Compressed data has one control character in ten bytes, text in any eight-bit encoding next to none.
_MOST_CONTROL_SHARE: Final = 0.02
_CONTROL_BYTES: Final = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b"))

_CONTROL_CHARACTERS: Final = {code: " " for code in range(32) if chr(code) not in "\n\t"}

_BYTE_ORDER_MARKS: Final = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))

# Letters that typesetting has joined: nobody types them into a search.
_LIGATURES: Final = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}

_ATX_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_UNDERLINE: Final = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


class Refusal(Exception):
    """One file that cannot be added; the others can.

    Args:
        reason: what was found, and what was needed.
        remedy: what to do about it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class PdfReaderMissing(Refusal):
    """A PDF without the package that reads it."""


@dataclass(frozen=True)
class Source:
    """A file's content as it was at one moment, not yet looked into."""

    path: Path
    """Resolved: one file has one entry, whatever way leads to it."""
    kind: DocumentKind
    data: bytes
    sha256: str
    modified_ns: int
    """As `modified_ns` of its status."""


@dataclass(frozen=True)
class Passage:
    """A piece of a document, and where it begins."""

    text: str
    heading: str = ""
    """Markdown: the headings above it, outermost first."""
    line: int | None = None
    """Markdown and text: the line of its first character, from 1."""
    page: int | None = None
    """PDF: from 1, as viewers count."""


@dataclass(frozen=True)
class Found:
    """What a place on disk holds."""

    files: tuple[Path, ...]
    refused: tuple[tuple[Path, Refusal], ...] = ()
    """Folders that cannot be read."""
    ignored: int = 0
    """Files of other kinds, and links that lead nowhere."""


def find_documents(place: Path) -> Found:
    """The file itself, or the documents below a folder, in order.

    Hidden files and folders are left out, and links to folders are not followed, so that no loop can arise.

    Raises:
        FileNotFoundError: there is nothing of that name.
    """
    path = _resolved(place)
    if not path.is_dir():
        return Found((path,))
    if _of_kernel(path):
        return Found((), ((path, _kernel_refusal()),))
    files: dict[Path, None] = {}
    refused: list[tuple[Path, Refusal]] = []
    ignored = 0

    def unreadable(error: OSError) -> None:
        where = Path(os.fsdecode(error.filename)) if error.filename else path
        remedy = "make it readable, or leave it out"
        refused.append((where, Refusal(f"found a folder that cannot be read: {error.strerror}", remedy)))

    for folder, subfolders, names in os.walk(path, onerror=unreadable):
        visible = sorted(name for name in subfolders if not name.startswith("."))
        subfolders[:] = [name for name in visible if not _of_kernel(Path(folder, name))]
        for name in sorted(names):
            if name.startswith("."):
                continue
            try:
                file = _resolved(Path(folder, name))
            except OSError:
                ignored += 1
                continue
            if Path(name).suffix.lower() in SUFFIXES:
                files.setdefault(file)
            else:
                ignored += 1
    return Found(tuple(files), tuple(refused), ignored)


def load(path: Path) -> Source:
    """Reads a file whole, so that its hash and its text are of the same moment.

    Raises:
        Refusal: it is no regular file, of the kernel, empty, too large, or cannot be read.
    """
    if _of_kernel(path):
        raise _kernel_refusal()
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            # Opening a pipe or a device may wait for ever.
            raise Refusal("found no regular file", "name a Markdown, text or PDF file")
        if not status.st_size:
            # Not even opened: where a file system makes up what is read, files have this size and no end.
            raise Refusal(
                "found no text in it: its size is 0", "nothing to do; if it has text, add a copy of it"
            )
        with path.open("rb") as file:
            kind = _kind(path, file.read(5))
            _check_size(status.st_size, kind)
            file.seek(0)
            # One byte more than allowed: a log may have grown since.
            data = file.read(_MOST_BYTES[kind] + 1)
            _check_size(len(data), kind)
    except OSError as error:
        reason = f"found a file that cannot be read: {error.strerror or error}"
        raise Refusal(reason, "make it readable, or leave it out") from error
    return Source(path, kind, data, hashlib.sha256(data).hexdigest(), modified_ns(status))


def modified_ns(status: os.stat_result) -> int:
    """When a file was changed, to be compared and kept in 64 bits, which end in the year 2262.

    Later times, as those of broken clocks, go on from the smallest number.
    """
    return (status.st_mtime_ns + (1 << 63)) % (1 << 64) - (1 << 63)


def split(source: Source, tell: Callable[[int, int], None] = lambda done, pages: None) -> tuple[Passage, ...]:
    """The passages of a document: pages of a PDF, sections of Markdown, runs of paragraphs of text.

    Args:
        tell: called after each page of a PDF with how many are done, and how many there are.

    Raises:
        Refusal: there is no text in it, or none that can be got at.
    """
    if source.kind == "pdf":
        return _pages(source.data, tell)
    lines = _clean(_decoded(source.data)).split("\n")
    sections = _sections(lines) if source.kind == "markdown" else [("", 1, lines)]
    passages = tuple(
        Passage(text, heading, line)
        for heading, first, section in sections
        for line, text in _pieces(section, first)
    )
    if not passages:
        raise Refusal("found no text in it", "nothing to do: there is nothing to search")
    return passages


def _resolved(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except RuntimeError as error:
        # What Python before 3.13 makes of a link to itself.
        raise FileNotFoundError(f"{path}: {error}") from error


def _of_kernel(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _KERNEL_FOLDERS)


def _kernel_refusal() -> Refusal:
    return Refusal(
        "found a place in /proc or /sys, which the kernel makes up; needed: a file on a disk",
        "copy what you want to keep into a file, and add that",
    )


def _check_size(size: int, kind: DocumentKind) -> None:
    if size > _MOST_BYTES[kind]:
        limit = f"at most {_MOST_BYTES[kind] >> 20} MiB for {kind}"
        raise Refusal(f"found {size >> 20} MiB; needed: {limit}", "split it, or leave it out")


def _kind(path: Path, beginning: bytes) -> DocumentKind:
    if beginning.startswith(b"%PDF-"):
        return "pdf"
    return SUFFIXES.get(path.suffix.lower(), "text")


def _decoded(data: bytes) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    control = len(data) - len(data.translate(None, _CONTROL_BYTES))
    if b"\0" in data or control > _MOST_CONTROL_SHARE * len(data):
        raise Refusal("found binary data; needed: Markdown, plain text or PDF", "convert it to text first")
    return data.decode("utf-8", "replace")


def _clean(text: str) -> str:
    """One kind of line end, and no control characters: the index marks its matches with those."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.translate(_CONTROL_CHARACTERS)
    # A PDF's tables may yield halves of surrogate pairs, which are no text to SQLite.
    return text.encode("utf-8", "replace").decode()


def _sections(lines: Sequence[str]) -> Iterator[tuple[str, int, Sequence[str]]]:
    """Heading path, number of the first line, and lines of each section."""
    path: list[tuple[int, str]] = []
    start = 0
    for at, level, title in _headings(lines):
        if at > start:
            yield _joined(path), start + 1, lines[start:at]
        path = [*(entry for entry in path if entry[0] < level), (level, title)]
        start = at
    yield _joined(path), start + 1, lines[start:]


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Index, level and words of each heading; a `#` in a code block is none."""
    fence = ""
    for at in range(_after_front_matter(lines), len(lines)):
        line = lines[at]
        marks = _FENCE.match(line)
        if fence:
            if marks and marks[1].startswith(fence) and not line[marks.end() :].strip():
                fence = ""
            continue
        if marks:
            fence = marks[1]
            continue
        hashes = _ATX_HEADING.fullmatch(line)
        if hashes:
            yield at, len(hashes[1]), (hashes[2] or "").strip()
            continue
        under = _UNDERLINE.fullmatch(lines[at + 1]) if at + 1 < len(lines) else None
        # Only a line that stands alone: under a longer paragraph or a table it is a rule.
        if under and line.strip() and (at == 0 or not lines[at - 1].strip()):
            yield at, 1 if under[1].startswith("=") else 2, line.strip()


def _after_front_matter(lines: Sequence[str]) -> int:
    if lines[0].rstrip() != "---":
        return 0
    return next((at + 1 for at, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)


def _joined(path: Sequence[tuple[int, str]]) -> str:
    return " > ".join(title for _, title in path if title)


def _pieces(lines: Sequence[str], first: int) -> Iterator[tuple[int, str]]:
    """Runs of lines of about a passage's length, broken at blank lines where there are some in time."""
    held: list[str] = []
    start, length = first, 0
    for number, line in enumerate(lines, first):
        full = length + len(line) > _PASSAGE_CHARACTERS
        if held and (full or (length > _PASSAGE_CHARACTERS / 2 and not line.strip())):
            yield from _piece(held, start)
            held, start, length = [], number, 0
        # A line without an end, as in a saved page, is cut; its pieces have one number.
        while len(line) > _PASSAGE_CHARACTERS:
            cut = line.rfind(" ", 1, _PASSAGE_CHARACTERS) + 1 or _PASSAGE_CHARACTERS
            yield from _piece([line[:cut]], number)
            line = line[cut:]
        held.append(line)
        length += len(line) + 1
    yield from _piece(held, start)


def _piece(lines: Sequence[str], start: int) -> Iterator[tuple[int, str]]:
    blank = next((at for at, line in enumerate(lines) if line.strip()), None)
    if blank is not None:
        yield start + blank, "\n".join(lines[blank:]).rstrip()


def _pages(data: bytes, tell: Callable[[int, int], None]) -> tuple[Passage, ...]:
    if not data.startswith(b"%PDF-") and b"%PDF-" not in data[:1024]:
        raise Refusal("found no PDF in it, whatever its name says", "get the file again")
    try:
        import pypdf
    except ImportError as error:
        reason = "found a PDF; needed: pypdf, which is not installed"
        raise PdfReaderMissing(reason, PDF_INSTALL) from error

    from pypdf.errors import DependencyError

    # Its remarks about sloppy files would stand between our own lines; what matters ends in a refusal.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            reader = pypdf.PdfReader(io.BytesIO(data))
            # Many are encrypted with an empty password, which only forbids printing or changing.
            if reader.is_encrypted and not reader.decrypt(""):
                raise Refusal(
                    "found an encrypted PDF; needed: one that opens without a password",
                    "save it without the password: qpdf --decrypt --password=PASSWORD IN.pdf OUT.pdf",
                )
            return _texts(reader, tell)
        except Refusal:
            raise
        except DependencyError as error:
            raise Refusal(
                "found a PDF encrypted with AES; needed: the package cryptography, to see whether it opens",
                "pip install cryptography",
            ) from error
        # Any other: pypdf says that broken files may cause more than its own exceptions.
        except Exception as error:
            said = " ".join(str(error).split())[:200]
            raise Refusal(
                f"found a damaged PDF ({type(error).__name__}{': ' if said else ''}{said})",
                "get the file again, or repair it: qpdf IN.pdf OUT.pdf",
            ) from error


def _texts(reader: Any, tell: Callable[[int, int], None]) -> tuple[Passage, ...]:
    count = len(reader.pages)
    passages = []
    for number in range(1, count + 1):
        text = _page_text(reader.pages[number - 1].extract_text())
        if text:
            passages.append(Passage(text, page=number))
        tell(number, count)
    if not passages:
        raise Refusal(
            f"found no text on any of its {count} pages; needed: text, not pictures of it",
            "recognise the text first: ocrmypdf IN.pdf OUT.pdf",
        )
    return tuple(passages)


def _page_text(text: str) -> str:
    text = _clean(text.translate(_LIGATURES))
    # Words broken at a line's end are joined; a compound broken there loses its hyphen, which is rarer.
    return re.sub(r"(?<=[a-z])-[ \t]*\n[ \t]*(?=[a-z])", "", text).strip()
