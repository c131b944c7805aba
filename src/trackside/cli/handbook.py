"""`trackside handbook`: the checklist, and full-text search over it and over the user's own documents."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer

from trackside.cli.terminal import JsonOption, narration, results, verb_app, write_json
from trackside.records.errors import TracksideError, printable

if TYPE_CHECKING:
    from trackside.handbook.index import Added, Document, Index
    from trackside.handbook.library import Found, Refusal
    from trackside.handbook.query import Hit

__all__ = ["app"]

app = verb_app(
    "The checklist for training and inference on GPUs, and search in it and in your own documents."
)

_DEFAULT_LIMIT: Final = 10
# More passages than a library of books has; 0 shows all.
_MOST_HITS: Final = 1_000_000
_EXIT_REFUSED: Final = 1


@app.command("list")
def list_(
    family: Annotated[str | None, typer.Option(help="The items of this family.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the families of the checklist, or the items of one."""
    from trackside.handbook.items import families
    from trackside.handbook.lookup import find_family

    document: dict[str, Any]
    if family is None:
        listed = families()
        document = {
            "schema": "trackside.handbook-families/1",
            "total": len(listed),
            "items": sum(len(each.items) for each in listed),
            "families": [
                {"name": each.name, "title": each.title, "about": each.about, "items": len(each.items)}
                for each in listed
            ],
        }
    else:
        one = find_family(family)
        heaviest_first = sorted(one.items, key=lambda item: -item.weight)
        document = {
            "schema": "trackside.handbook-items/1",
            "family": one.name,
            "title": one.title,
            "about": one.about,
            "total": len(one.items),
            "items": [{"id": item.id, "title": item.title, "weight": item.weight} for item in heaviest_first],
        }
    _present(document, as_json)


@app.command()
def show(
    item: Annotated[
        str, typer.Argument(metavar="ID", help="An item's id, a unique beginning of it, or its bare name.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show one item: why, when, how to check, what to change, what it brings."""
    from trackside.handbook.items import items
    from trackside.handbook.lookup import find_item

    found = find_item(item)
    related = [{"id": other, "title": items()[other].title} for other in found.related]
    _present({"schema": "trackside.handbook-item/1"} | asdict(found) | {"related": related}, as_json)


# Unknown options are words too: people look for the flags of other programs.
@app.command(context_settings={"ignore_unknown_options": True})
def search(
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS", help="Any words or flags; the last may be only begun.")
    ],
    limit: Annotated[
        int, typer.Option(min=0, max=_MOST_HITS, help="At most this many, the best; 0 shows all.")
    ] = _DEFAULT_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """Search the checklist and the documents that were added.

    Finds passages with all the words; where there are none, those with some of them.
    """
    from trackside.handbook.index import Index

    with Index() as index:
        found = index.search(words, limit or None)
    document = {
        "schema": "trackside.handbook-search/1",
        "asked": [printable(word) for word in words],
        "words": found.words,
        "matched": found.matched,
        "documents": found.documents,
        "total": found.total,
        "shown": len(found.hits),
        "hits": [_hit(hit) for hit in found.hits],
    }
    _present(document, as_json)


@app.command()
def add(
    places: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|FOLDER", help="Markdown, plain text or PDF, or folders with such."),
    ],
    as_json: JsonOption = False,
) -> int:
    """Add documents of your own to the search. They stay on this machine.

    A file that was added before is replaced if it has changed, and otherwise left alone.

    Exit codes: 0 everything is in; 1 some files were refused, and the others are in.
    """
    from trackside.handbook.index import Index
    from trackside.handbook.library import PDF_INSTALL, PdfReaderMissing

    found = [_find(place) for place in places]
    entries: list[dict[str, Any]] = []
    refusals: list[Refusal] = []

    def refuse(path: Path, refusal: Refusal) -> None:
        refusals.append(refusal)
        told = {"reason": printable(refusal.reason), "remedy": refusal.remedy}
        entries.append({"path": printable(str(path)), "outcome": "refused"} | told)

    for part in found:
        for path, refusal in part.refused:
            refuse(path, refusal)
    files = list(dict.fromkeys(path for part in found for path in part.files))
    with Index() as index:
        for path, outcome in _added(index, files):
            if isinstance(outcome, Exception):
                refuse(path, outcome)
            else:
                entries.append(_entry(outcome.document) | {"outcome": outcome.outcome})
    if refusals and len(refusals) == len(entries) and all(isinstance(r, PdfReaderMissing) for r in refusals):
        raise TracksideError("missing-dependency", refusals[0].reason, PDF_INSTALL)
    counts = {
        name: sum(entry["outcome"] == name for entry in entries)
        for name in ("added", "replaced", "unchanged", "refused")
    }
    document = {
        "schema": "trackside.handbook-add/1",
        "index": printable(str(index.path)),
        "total": len(entries),
        **counts,
        "ignored": sum(part.ignored for part in found),
        "documents": entries,
    }
    _present(document, as_json)
    return _EXIT_REFUSED if refusals else 0


@app.command()
def documents(as_json: JsonOption = False) -> None:
    """List the documents that were added."""
    from trackside.handbook.index import Index

    with Index() as index:
        listed = index.documents()
    document = {
        "schema": "trackside.handbook-documents/1",
        "index": printable(str(index.path)),
        "total": len(listed),
        "passages": sum(each.passages for each in listed),
        "documents": [_entry(each) | {"state": each.state} for each in listed],
    }
    _present(document, as_json)


@app.command()
def remove(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A document that was added.")],
    as_json: JsonOption = False,
) -> None:
    """Remove one document from the search. The file itself stays."""
    from trackside.handbook.index import Index

    with Index() as index:
        # Not Path.resolve, which may fail on a file that is gone or a link to itself.
        gone = index.remove(Path(os.path.realpath(file)))
        left = len(index.documents())
    _present({"schema": "trackside.handbook-remove/1", "removed": _entry(gone), "left": left}, as_json)


def _present(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        write_json(document)
    else:
        from trackside.report.handbook_text import render

        render(document, results())


def _find(place: Path) -> Found:
    from trackside.handbook.library import SUFFIXES, Found, Refusal, find_documents

    try:
        found = find_documents(place)
    except OSError as error:
        raise TracksideError(
            "not-found",
            f"found nothing to read at {place} ({error.strerror or 'a link that leads to itself'}); "
            "needed: a file or a folder",
            "see that the path is right; nothing has been added",
        ) from error
    if found.files or found.refused:
        return found
    endings = ", ".join(SUFFIXES)
    refusal = Refusal(f"found no document in this folder; needed: files that end in {endings}", "name files")
    return Found((), ((place, refusal),), found.ignored)


def _added(index: Index, files: Sequence[Path]) -> Iterator[tuple[Path, Added | Refusal]]:
    """Adds one file after the other; what is refused does not keep the others out."""
    from trackside.handbook.library import Refusal, load

    with _progress(len(files)) as progress:
        for number, path in enumerate(files):
            name = printable(path.name)
            progress(number, name)

            def page(done: int, pages: int, number: int = number, name: str = name) -> None:
                progress(number, f"{name}, page {done} of {pages}")

            outcome: Added | Refusal
            try:
                outcome = index.add(load(path), page)
            except Refusal as refusal:
                outcome = refusal
            yield path, outcome


class _Tell(Protocol):
    def __call__(self, done: int, what: str) -> None: ...


@contextmanager
def _progress(total: int) -> Iterator[_Tell]:
    """A bar on a terminal, one line elsewhere; on stderr, where `--json` wants it too."""
    console = narration()
    if not console.is_terminal:
        if total > 1:
            console.print(f"reading {total} documents")
        yield lambda done, what: None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, what: bar.update(task, completed=done, description=escape(what))


def _entry(document: Document) -> dict[str, Any]:
    return {
        "path": printable(str(document.path)),
        "kind": document.kind,
        "pages": document.pages,
        "passages": document.passages,
        "bytes": document.size,
        "sha256": document.sha256,
        "added": document.added,
    }


def _hit(hit: Hit) -> dict[str, Any]:
    return asdict(hit) | {"file": hit.file and printable(str(hit.file))}
