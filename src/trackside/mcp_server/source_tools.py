"""Tools that read text: a region of source with what its lines cost, and the handbook."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from trackside.mcp_server.answers import Cost, Handbook, Passage, Source
from trackside.mcp_server.plain_text import plain
from trackside.mcp_server.reply import Detail
from trackside.mcp_server.run_tools import LAST, LEAST_SHARE, Limit, RunReference, whole
from trackside.mcp_server.scope import Scope
from trackside.records.errors import TracksideError
from trackside.store.selection import RunFilter

__all__ = ["SourceTools"]

# Source beyond this is generated, or no source.
_MOST_BYTES = 2 << 20
_MOST_LINES = 400
_LONGEST_LINE = 400
# Characters of source: the costs and the rest of an answer have to fit as well.
_MOST_TEXT: dict[Detail, int] = {"concise": 3_500, "full": 14_000}
_ITEMS_IN_FULL = 3


class SourceTools:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def source_read(
        self,
        file: str,
        line: Annotated[int, Field(ge=1)] = 1,
        context: Annotated[int, Field(ge=0, le=200, description="lines before and after")] = 10,
        run: RunReference = "",
        detail: Detail = "concise",
    ) -> Source:
        """A region of a file under the allowed roots with the time of each line from a profile (default: the
        newest that has the file). Use it to see a hot line in its surroundings before you change it."""
        path = self._scope.file(file)
        lines = _lines(self._scope.read(path, _MOST_BYTES))
        if line > len(lines):
            raise TracksideError(
                "usage", f"found line {line}; the file has {len(lines)}", "name a line that the file has"
            )
        around = min(context, _MOST_LINES // 2)
        first, last = max(1, line - around), min(len(lines), line + around)
        run_id, costs, moved = self._costs(str(path), lines, run)
        width = len(str(last))
        told = {}
        for number in range(first, last + 1):
            cost = costs.get(number)
            gutter = f"{100 * cost.share:5.1f}%" if cost else "      "
            told[number] = f"{number:{width}} {gutter} | {_short(lines[number - 1])}"
        # Whole lines give way, from the farther end, so that first and last are true.
        while len(told) > 1 and sum(len(text) + 1 for text in told.values()) > _MOST_TEXT[detail]:
            del told[last if last - line >= line - first else first]
            first, last = min(told), max(told)
        # The gutter has every share; a row of its own is for those that count.
        least = LEAST_SHARE if detail == "concise" else 0.0
        rows = [costs[n] for n in sorted(costs) if first <= n <= last and costs[n].share >= least]
        note = ""
        if moved:
            note = (
                f"{moved} lines of the profile read otherwise now: the file has changed since; profile again"
            )
        elif not run_id:
            note = "no profile has this file: costs are unknown"
        return Source(
            run=run_id,
            file=self._scope.shown(path),
            first=first,
            last=last,
            lines=len(lines),
            source="\n".join(told.values()),
            rows=rows,
            note=note,
            links=[f"runs://{run_id}/lines"] if run_id else [],
        ).of(len(costs))

    def handbook_search(
        self,
        query: Annotated[str, Field(min_length=1, max_length=500)],
        limit: Limit = 5,
        detail: Detail = "concise",
    ) -> Handbook:
        """Searches the checklist for training and inference on GPUs, and the user's own documents. Use it for
        how to mend a finding, or what a setting does; full adds the exact commands."""
        from trackside.handbook.index import Index
        from trackside.handbook.items import items

        with Index(self._scope.store.root) as index:
            found = index.search(query.split(), limit)
        rows = []
        for number, hit in enumerate(found.hits):
            item = items().get(hit.item) if hit.item else None
            where = f"{hit.file}" + (f":{hit.line}" if hit.line else f" page {hit.page}" if hit.page else "")
            commands = item.do if item and detail == "full" and number < _ITEMS_IN_FULL else ()
            place = f"handbook://{hit.item}" if hit.item else where
            rows.append(Passage(title=hit.heading, place=place, snippet=hit.snippet, do=list(commands)))
        links = [row.place for row in rows if row.place.startswith("handbook://")][:3]
        return Handbook(matched=found.matched, rows=rows, links=links).of(found.total)

    def _costs(self, path: str, lines: list[str], reference: str) -> tuple[str, dict[int, Cost], int]:
        """The run, costs by line where the line still reads as it did, and how many do not."""
        for run_id in [reference] if reference not in ("", LAST) else self._recent(reference):
            try:
                full_id, record = self._scope.record(run_id, "trackside.profile/1")
                with whole(f"the record of run {full_id}"):
                    rows = [row for row in record.get("lines", ()) if self._is(row, path)]
                    if rows or reference:
                        return full_id, *_still_there(rows, lines, on_host=record.get("device") == "cpu")
            except TracksideError:
                if reference:
                    raise
                # Another one may have the file; without any, the source is worth its reading too.
        return "", {}, 0

    def _recent(self, reference: str) -> list[str]:
        """The newest finished profile, or with it those before in which the file may be looked for."""
        # Further back a profile says little about what is there now.
        wanted = RunFilter(verb="profile", state="done")
        found = [one.id for one in self._scope.store.find(wanted, 1 if reference else 5).runs]
        if reference and not found:
            raise TracksideError(
                "not-found", "there is no finished run of profile", "profile_start makes one"
            )
        return found

    def _is(self, row: dict[str, Any], path: str) -> bool:
        return str(self._scope.real(row["file"])) == path


def _still_there(rows: list[dict[str, Any]], lines: list[str], on_host: bool) -> tuple[dict[int, Cost], int]:
    costs: dict[int, Cost] = {}
    moved = 0
    for row in rows:
        number = row["line"]
        if number > len(lines) or lines[number - 1].strip() != str(row["text"]).strip():
            moved += 1
            continue
        ms = (row["cpu_ms"] if on_host else row["device_ms"]) + row["backward_ms"]
        costs[number] = Cost(line=number, ms=ms, share=row["share"])
    return costs, moved


def _short(line: str) -> str:
    # Blanked before it is cut: what is left of a secret is not found any more.
    return plain(line, _LONGEST_LINE, lines=True)


def _lines(data: bytes) -> list[str]:
    if b"\0" in data:
        raise TracksideError("usage", "found a binary file", "name a source file")
    # As Python counts them: str.splitlines would also end a line at a form feed.
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n")
