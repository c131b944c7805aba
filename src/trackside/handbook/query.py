"""Full-text search in an open index: words to an expression of FTS5, and rows to hits with their places."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from trackside.records.errors import TracksideError

__all__ = ["Hit", "Results", "search", "terms"]

# The library strips control characters from texts, so these mark matches without doubt.
_MARK_START, _MARK_END = "\x02", "\x03"
# Two lines of a terminal; SQLite's own limit is 64.
_SNIPPET_TOKENS: Final = 28

# FTS5 builds a tree of the words; a question has a dozen at most.
_MOST_WORDS: Final = 64
# The index has stems: "quantiza", on its way to quantization, is longer than "quantiz" and begins nothing.
_SUFFIXES: Final = (
    *("able", "ance", "ation", "ence", "ible", "ication", "ing", "ion", "isation", "ity", "ive", "ization"),
    *("ment", "ness"),
)
_BEGUN_SUFFIXES: Final = frozenset(suffix[:end] for suffix in _SUFFIXES for end in range(1, len(suffix)))
_LEAST_STEM: Final = 4

# Quantised and quantized: texts have either, stemming keeps them apart, and the word may be only begun.
_ISE: Final = re.compile(r"(?<=\w\wi)[sz](?=(?:e[drs]?|ers|i|ing?|a|at|ati|atio|ations?)?$)")


@dataclass(frozen=True)
class Hit:
    """A passage that a search found, and where it is."""

    kind: Literal["item", "markdown", "text", "pdf"]
    item: str | None
    file: Path | None
    page: int | None
    line: int | None
    """Markdown and text: the line of the first word found, not of the passage."""
    heading: str
    """The item's title, or the headings above the passage."""
    snippet: str
    marks: tuple[tuple[int, int], ...]
    """Start and end in the snippet of what matched."""
    score: float
    """BM25: the higher, the better; only good for comparing hits of one search."""


@dataclass(frozen=True)
class Results:
    """The best hits, and how many there are in all."""

    words: tuple[str, ...]
    """As they were looked for: without those that have neither letter nor digit."""
    matched: Literal["all", "some", "none"]
    """`some`: no passage has all the words, and these have at least one."""
    total: int
    hits: tuple[Hit, ...]
    documents: int
    """How many documents were searched beside the checklist."""


def search(connection: sqlite3.Connection, words: Sequence[str], limit: int | None) -> Results:
    """Looks for words as `terms` returns them; those of one phrase stay together, the last may be begun."""
    phrases = [*(_either(_phrases(word)) for word in words[:-1]), _either(_begun(words[-1]))]
    matched: Literal["all", "some", "none"] = "all"
    expression = " AND ".join(phrases)
    total = _count(connection, expression)
    if not total and len(phrases) > 1:
        matched, expression = "some", " OR ".join(phrases)
        total = _count(connection, expression)
    hits = _hits(connection, expression, -1 if limit is None else limit)
    (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    return Results(
        words=tuple(words),
        matched=matched if total else "none",
        total=total,
        hits=hits,
        documents=documents,
    )


def terms(words: Sequence[str]) -> list[str]:
    """The words to look for: what has a letter or digit in it.

    Raises:
        TracksideError: kind `usage`, when there is no word among them, or too many.
    """
    whole = " ".join(words).encode("utf-8", "ignore").decode()
    found = [word for word in whole.split() if any(c.isalnum() for c in word)]
    if not found:
        raise TracksideError(
            "usage",
            f"found no letter or digit in {' '.join(words)!r}; needed: at least one word",
            "trackside handbook search WORDS",
        )
    if len(found) > _MOST_WORDS:
        raise TracksideError(
            "usage", f"found {len(found)} words; needed: at most {_MOST_WORDS}", "ask with fewer words"
        )
    return found


def _phrases(term: str) -> list[str]:
    """A term for FTS5, in both spellings: inside the quotes nothing but the quote itself has a meaning."""
    other = _ISE.sub(lambda found: "z" if found[0] == "s" else "s", term.lower())
    spellings = [term] if other == term.lower() else [term, other]
    return ['"' + spelling.replace('"', '""') + '"' for spelling in spellings]


def _begun(term: str) -> list[str]:
    """What a word may become that is only begun: what begins so, and stems that it has outgrown."""
    cuts = range(len(term) - 1, _LEAST_STEM - 1, -1)
    # With an e, since stemming would take the s of "quantis" for a plural.
    stems = [re.sub("([sz])$", r"\1e", term[:at]) for at in cuts if term[at:].lower() in _BEGUN_SUFFIXES]
    return [f"{phrase}*" for phrase in _phrases(term)] + [p for stem in stems for p in _phrases(stem)]


def _either(phrases: Sequence[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"({' OR '.join(phrases)})"


def _count(connection: sqlite3.Connection, expression: str) -> int:
    query = "SELECT count(*) FROM passages WHERE passages MATCH ?"
    (total,) = connection.execute(query, (expression,)).fetchone()
    return int(total)


def _hits(connection: sqlite3.Connection, expression: str, limit: int) -> tuple[Hit, ...]:
    # Ordered by FTS5 itself, which then makes snippets of the rows it returns and not of all that match.
    ranked = (
        "SELECT rowid, rank, heading, text, snippet(passages, 2, ?, ?, '', ?) FROM passages"
        " WHERE passages MATCH ? ORDER BY rank LIMIT ?"
    )
    place = (
        "SELECT item, line, page, path, kind FROM places LEFT JOIN documents"
        " ON documents.id = places.document WHERE places.id = ?"
    )
    hits = []
    arguments = (_MARK_START, _MARK_END, _SNIPPET_TOKENS, expression, limit)
    for number, rank, heading, text, marked in connection.execute(ranked, arguments).fetchall():
        item, line, page, path, kind = connection.execute(place, (number,)).fetchone()
        snippet, marks, before = _snippet(text, marked)
        hits.append(
            Hit(
                kind="item" if item else kind,
                item=item,
                file=None if path is None else Path(os.fsdecode(path)),
                page=page,
                line=None if line is None else line + text.count("\n", 0, before),
                heading=heading,
                snippet=snippet,
                marks=marks,
                score=round(-rank, 4),
            )
        )
    return tuple(hits)


def _snippet(text: str, marked: str) -> tuple[str, tuple[tuple[int, int], ...], int]:
    """A snippet on one line, the places of its matches, and where in the text the first of them is."""
    plain = marked.replace(_MARK_START, "").replace(_MARK_END, "")
    begin = max(text.find(plain), 0)
    first = begin + max(marked.find(_MARK_START), 0)
    flat = re.sub(r"\s+", " ", marked).strip()
    shown = "…" if text[:begin].strip() else ""
    marks = []
    for piece in flat.split(_MARK_START):
        inside, ended, after = piece.partition(_MARK_END)
        if ended:
            marks.append((len(shown), len(shown) + len(inside)))
        shown += inside + after
    if text[begin + len(plain) :].strip():
        shown += "…"
    return shown, tuple(marks), first
