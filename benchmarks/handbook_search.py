"""How long `trackside handbook search` takes in the process, with 1,000 added pages beside the checklist."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.context import Bar
from trackside.handbook.index import Index
from trackside.handbook.items import items
from trackside.handbook.library import load

__all__ = ["main"]

# What a person takes for at once.
LIMIT_SECONDS = 0.1
# A printed page.
WORDS_A_PAGE = 400
PAGES_A_DOCUMENT = 50

# From one rare word to what nearly every page has, from a begun letter to a question in a sentence.
QUESTIONS = (
    "page137",
    "pinned memory",
    "--gpu-memory-utilization",
    "quantiza",
    "m",
    "the cache of the model",
    "why is the first token so slow when the prompt is long and the batch is small",
    "nothing has xqzzyx in it",
)


def main() -> int:
    """Prints each question's times and the bar; returns 0 when the slowest keeps it, else 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handbook_search", description=__doc__)
    parser.add_argument("--pages", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=20, help="of each question")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as scratch:
        root = Path(scratch) / "store"
        seconds = _fill(root, Path(scratch), arguments.pages)
        print(f"added {arguments.pages} pages in {seconds:.2f} s")
        slowest = 0.0
        for question in QUESTIONS:
            times, total = _ask(root, question.split(), arguments.repeats)
            slowest = max(slowest, *times)
            print(
                f"median {statistics.median(times) * 1e3:6.1f} ms   slowest {max(times) * 1e3:6.1f} ms   "
                f"n {len(times)}   {total:5} passages   {question}"
            )
    bar = Bar(
        f"a search over {arguments.pages} pages and {len(items())} items answers at once",
        f"≤ {LIMIT_SECONDS * 1e3:g} ms",
        f"slowest of {len(QUESTIONS) * arguments.repeats}: {slowest * 1e3:.1f} ms",
        slowest <= LIMIT_SECONDS,
    )
    print(bar.line())
    return 0 if bar.passed else 1


def _fill(root: Path, scratch: Path, pages: int) -> float:
    """Documents of words drawn from the checklist, so that questions find much and ranking has work."""
    draw = random.Random(1)
    words = " ".join(f"{item.title} {item.why} {' '.join(item.do)}" for item in items().values()).split()
    began = time.perf_counter()
    with Index(root) as index:
        for first in range(0, pages, PAGES_A_DOCUMENT):
            numbers = range(first, min(first + PAGES_A_DOCUMENT, pages))
            sections = (f"# Page{n}\n\n{' '.join(draw.choices(words, k=WORDS_A_PAGE))}\n" for n in numbers)
            path = scratch / f"{first}.md"
            path.write_text("\n".join(sections), encoding="utf-8")
            index.add(load(path))
        # What a store's first search does once: it takes the checklist in.
        index.search(["warm"])
    return time.perf_counter() - began


def _ask(root: Path, words: list[str], repeats: int) -> tuple[list[float], int]:
    """Times from opening the file to the last hit, as one call of the program has them."""
    times = []
    total = 0
    for _ in range(repeats):
        began = time.perf_counter()
        with Index(root) as index:
            total = index.search(words, 10).total
        times.append(time.perf_counter() - began)
    return times, total


if __name__ == "__main__":
    sys.exit(main())
