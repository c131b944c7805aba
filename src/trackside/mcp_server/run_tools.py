"""Tools about past runs: the list, hot lines, kernels, findings, and what changed between two profiles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from trackside.mcp_server.answers import (
    Change,
    Diff,
    Finding,
    Findings,
    Hotspots,
    Kernel,
    Kernels,
    Line,
    Run,
    Runs,
)
from trackside.mcp_server.machine_tools import doctor_findings
from trackside.mcp_server.plain_text import plain
from trackside.mcp_server.reply import Detail
from trackside.mcp_server.scope import Scope
from trackside.mcp_server.watch_view import WATCH, watch_findings
from trackside.records.errors import TracksideError
from trackside.store.runs import RunSummary

__all__ = ["LAST", "LEAST_SHARE", "Limit", "RunReference", "RunTools", "measured", "whole"]

_PROFILE, _COMPARE = "trackside.profile/1", "trackside.compare/1"
_CHECK, _DOCTOR = "trackside.check/1", "trackside.doctor/1"

RunReference = Annotated[str, Field(description="id, its beginning, or last", max_length=200)]
LAST: Final = "last"
"""In the place of a run's id: the newest finished run of the kind that is asked for."""
Limit = Annotated[int, Field(ge=1, le=500)]

# Lines below this share of the step are not told unless asked for.
LEAST_SHARE: Final = 0.005
_TRUST, _EVIDENCE, _CALLERS, _COUNTERS, _FILES = 3, 2, 3, 8, 5


class RunTools:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def runs_list(
        self,
        verb: Literal["", "profile", "compare", "check", "machine", "ceilings", "doctor", "selfcheck"] = "",
        limit: Limit = 10,
        detail: Detail = "concise",
    ) -> Runs:
        """Past runs, newest first, with verdict or reason. Use it to find the id of an earlier result instead
        of measuring again."""
        store = self._scope.store
        rows = [
            Run(
                id=one.id,
                verb=one.verb,
                started=one.started[:19] + "Z",
                state=one.state,
                verdict=_outcome(one),
                about=one.about,
            )
            for one in store.list(verb=verb or None, limit=limit)
        ]
        if detail == "concise":
            for row in rows:
                row.verdict = _first(row.verdict, 90)
        total = len(rows) if len(rows) < limit else store.count(verb=verb or None)
        note = "; ".join(store.take_remarks())
        return Runs(rows=rows, note=note, links=[f"runs://{row.id}" for row in rows[:1]]).of(total)

    def hotspots_list(
        self,
        run: RunReference = "",
        file: Annotated[str, Field(description="only lines of this file")] = "",
        limit: Limit = 8,
        detail: Detail = "concise",
    ) -> Hotspots:
        """Where a profiled program's time goes, line by line, hottest first. Use it after profile_start,
        before you touch any code."""
        run_id, record = self._profile(run)
        lines = [row for row in record["lines"] if not file or self._same(row["file"], file)]
        if file and not lines and record["lines"]:
            # An empty list would read as: nothing in it is slow.
            there = list(dict.fromkeys(self._file(row["file"]) for row in record["lines"]))
            raise TracksideError(
                "not-found",
                f"found no line of {plain(file, 100)} in the profile {run_id}; its lines are in "
                + ", ".join(_few(there, _FILES, "concise")),
                "name one of these files, or leave it out for all lines",
            )
        if detail == "concise" and not file:
            lines = [row for row in lines if row["share"] >= LEAST_SHARE] or lines
        on_device = record["device"] != "cpu"
        return Hotspots(
            run=run_id,
            device=record["device"],
            step_ms=record["step_ms"],
            spread=record["step_spread"],
            steps=record["steps"],
            steps_found_by=record["steps_found_by"],
            rows=[self._line(row, record["kernels"], on_device) for row in lines[:limit]],
            other={row["name"]: row["share"] for row in record["buckets"] if row["share"] >= LEAST_SHARE},
            trust=_few([f"{row['what']}: {row['effect']}" for row in record["trust"]], _TRUST, detail),
            links=[f"runs://{run_id}"],
        ).of(len(record["lines"]) if not file else len(lines))

    def kernels_list(
        self,
        run: RunReference = "",
        line: Annotated[str, Field(description="only kernels that this file:line starts")] = "",
        limit: Limit = 8,
        detail: Detail = "concise",
    ) -> Kernels:
        """The kernels (on a CPU: operators) of a profiled step with their bound, distance to the machine's
        limit, counters and calling lines. Use it when a hot line does not explain itself."""
        run_id, record = self._profile(run)
        found = record["kernels"]
        if line:
            if not re.fullmatch(r".+:\d{1,9}", line):
                raise TracksideError(
                    "usage",
                    f"found `line` = {plain(line, 100)}; needed: file:line",
                    "hotspots_list has files and lines",
                )
            found = [row for row in found if any(self._same_place(place, line) for place in row["lines"])]
        rows: list[Kernel] = []
        hints: list[str] = []
        for row in found[:limit]:
            counters = list(row["counters"].items())[: None if detail == "full" else _COUNTERS]
            if len(counters) < len(row["counters"]) and not hints:
                hints.append(f"of counters the first {_COUNTERS} are told, all with detail=full")
            rows.append(
                Kernel(
                    id=row["id"],
                    name=row["name"],
                    calls=row["calls"],
                    ms=row["total_ms"],
                    share=row["share"],
                    bound=row["bound"] if row["bound"] != "unknown" else None,
                    of_limit=row["roof_share"],
                    lines=_few([self._place(place) for place in row["lines"]], _CALLERS, detail),
                    counters=dict(counters),
                )
            )
        if line and not rows:
            hints.append("no kernel of this profile is started there: hotspots_list has the lines that do")
        elif not record["ceilings"] and not any(row.bound for row in rows):
            hints.append("bounds are unknown without ceilings: ceilings_start, then profile_start again")
        total = len(found) + (0 if line else record["kernels_left_out"])
        return Kernels(
            run=run_id,
            device=record["device"],
            step_ms=record["step_ms"],
            rows=rows,
            links=[f"runs://{run_id}/kernels"],
            next="; ".join(hints),
        ).of(total)

    def findings_list(
        self,
        run: Annotated[str, Field(description="as elsewhere, or watch", max_length=200)] = "",
        detail: Detail = "concise",
    ) -> Findings:
        """What a profile, comparison, check, watch or doctor's run found: what to change at which file:line
        with predicted gain and evidence, or why a candidate was rejected. Use it to choose what to repair."""
        if run == WATCH:
            with whole("the watch's status"):
                return watch_findings(self._scope, detail)
        run_id, record = self._record(run, _PROFILE, _COMPARE, _CHECK, _DOCTOR)
        schema = record["schema"]
        with whole(f"the record of run {run_id}"):
            if schema == _DOCTOR:
                return doctor_findings(record, detail)
            if schema == _CHECK:
                return _of_check(run_id, record, detail)
            if schema == _COMPARE:
                return _of_compare(run_id, record, detail)
            return self._of_profile(run_id, record, detail)

    def runs_diff(
        self,
        before: RunReference = "",
        after: RunReference = "",
        limit: Limit = 12,
        detail: Detail = "concise",
    ) -> Diff:
        """What changed between two profiles (default: the newest two): step, lines, kernels. Use it after a
        repair to see where time went; only compare_start proves that it is faster."""
        from trackside.profiling.diff import diff_profiles
        from trackside.records.profile import ProfileRecord

        second = self._record(after, _PROFILE)
        records = [self._record(before or self._profile_before(second[0]), _PROFILE), second]
        found = diff_profiles(*(ProfileRecord.from_dict(record) for _, record in records))
        groups: list[tuple[str, Sequence[Any]]] = [
            ("step", [found.step] if found.step else []),
            ("line", found.lines),
            ("kernel", found.kernels),
        ]
        if detail == "full":
            groups += [("part", found.breakdown), ("module", found.modules), ("other", found.buckets)]
        changes = [
            Change(
                kind=kind,
                name=self._place(one.name) if kind == "line" else one.name,
                before_ms=one.before_ms,
                after_ms=one.after_ms,
                delta_ms=one.delta_ms,
            )
            for kind, group in groups
            for one in group
            if one.delta_ms or kind == "step"
        ]
        # The step first, then whatever moved most.
        changes.sort(key=lambda one: (one.kind != "step", -abs(one.delta_ms)))
        return Diff(
            run=records[1][0],
            before=records[0][0],
            verdict=found.verdict,
            beyond_spread=found.beyond_spread,
            doubts=found.doubts,
            rows=changes[:limit],
            gone=[_told(one.model_dump()) for one in found.fixed],
            new=[_told(one.model_dump()) for one in found.new],
            links=[f"runs://{run_id}" for run_id, _ in records],
        ).of(len(changes))

    def _of_profile(self, run_id: str, record: dict[str, Any], detail: Detail) -> Findings:
        rows = [
            Finding(
                id=row["id"],
                title=row["title"],
                file=self._file(row["file"]) if row["file"] else None,
                line=row["line"],
                gain=[row["gain"]["low"], row["gain"]["mid"], row["gain"]["high"]],
                confidence=row["confidence"],
                evidence=_few(row["evidence"], _EVIDENCE, detail),
                fix=row["fix"],
                # It quotes the file.
                diff=row["diff"] if detail == "full" and self._scope.holds(row["file"] or "") else None,
                kernels=row["kernels"],
                item=_item(row["item"]),
            )
            for row in record["findings"]
        ]
        return Findings(
            run=run_id,
            verdict=record["verdict"],
            rows=rows,
            links=[f"runs://{run_id}", *dict.fromkeys(row.item for row in rows[:4] if row.item)],
            next="gains are predictions: prove a change with compare_start" if rows else "see hotspots_list",
        ).of(len(rows))

    def _record(self, reference: str, *schemas: str) -> tuple[str, dict[str, Any]]:
        named = reference if reference != LAST else ""
        with whole("the record"):
            return self._scope.record(named or self._newest(schemas), *schemas)

    def _profile(self, reference: str) -> tuple[str, dict[str, Any]]:
        from trackside.records.profile import ProfileRecord

        run_id, record = self._record(reference, _PROFILE)
        # Read by its model: what an older or a broken record lacks is said in its words.
        return run_id, ProfileRecord.from_dict(record).to_dict()

    def _newest(self, schemas: Sequence[str]) -> str:
        """The newest finished run of that kind: what `last` of all kinds is may be a look at the machine."""
        verbs = [schema.removeprefix("trackside.").partition("/")[0] for schema in schemas]
        only = verbs[0] if len(verbs) == 1 else None
        # A summary costs the reading of a whole record, so the newest ones are asked first.
        for limit in (3, 30, None):
            for one in self._scope.store.list(verb=only, limit=limit):
                if one.state == "done" and one.verb in verbs:
                    return one.id
        raise TracksideError(
            "not-found", f"there is no finished run of {' or '.join(verbs)}", "profile_start makes one"
        )

    def _profile_before(self, run_id: str) -> str:
        for limit in (10, None):
            listed = self._scope.store.list(verb="profile", limit=limit)
            ids = [one.id for one in listed if one.state == "done"]
            if run_id in ids[:-1]:
                return ids[ids.index(run_id) + 1]
        raise TracksideError("not-found", f"there is no finished profile before {run_id}", "see runs_list")

    def _line(self, row: dict[str, Any], kernels: Sequence[dict[str, Any]], on_device: bool) -> Line:
        place = f"{row['file']}:{row['line']}"
        return Line(
            file=self._file(row["file"]),
            line=row["line"],
            # Source that lies elsewhere is not for this server to show.
            text=row["text"].strip() if self._scope.holds(row["file"]) else "",
            ms=(row["device_ms"] if on_device else row["cpu_ms"]) + row["backward_ms"],
            cpu_ms=row["cpu_ms"] if on_device else None,
            share=row["share"],
            calls=row["calls"],
            kernels=[one["id"] for one in kernels if place in one["lines"]][:_CALLERS],
        )

    def _file(self, name: str) -> str:
        """As this server takes it back: from the first root."""
        return self._scope.shown(self._scope.folder / name)

    def _place(self, place: str) -> str:
        file, _, line = place.rpartition(":")
        return f"{self._file(file)}:{line}" if file and line.isdigit() else place

    def _same(self, one: str, other: str) -> bool:
        first = self._scope.real(one)
        return first is not None and first == self._scope.real(other)

    def _same_place(self, one: str, other: str) -> bool:
        (file, _, line), (second, _, at) = one.rpartition(":"), other.rpartition(":")
        return line == at and bool(file and second) and self._same(file, second)


@contextmanager
def whole(what: str) -> Iterator[None]:
    """What is read from a record that was edited, or came from elsewhere, may lack anything."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise TracksideError("store", f"{what} is not whole", "run it again") from error


def _outcome(one: RunSummary) -> str | None:
    """The verdict, or why there is none; what is not certified proves nothing, also in a list."""
    if one.state != "done":
        return one.reason or one.verdict
    return f"{one.verdict}, not certified" if one.verdict and one.certified is False else one.verdict


def _of_compare(run_id: str, record: dict[str, Any], detail: Detail) -> Findings:
    order = ("fail", "warn", "unknown", "pass")
    told = order[:2] if detail == "concise" else order
    checks = sorted(record["checks"], key=lambda one: (*order, "not_applicable").index(one["status"]))
    # Those that were never reached all say the same: one row for them.
    alike: dict[tuple[str, str], list[str]] = {}
    for check in checks:
        if check["status"] in told:
            alike.setdefault((check["status"], check["detail"]), []).append(check["id"])
    rows = [
        Finding(id=", ".join(ids), status=status, evidence=[text] if text else [])
        for (status, text), ids in alike.items()
    ]
    said = {f"{name}: {text}" for (_, text), ids in alike.items() for name in ids}
    return Findings(
        run=run_id,
        verdict=_judged(record),
        # What a row says is not said twice.
        reasons=[reason for reason in record["reasons"] if reason not in said],
        rows=rows,
        links=[f"runs://{run_id}/checks"],
        next="`trackside compare --explain CHECK` says what a check looks for" if rows else "",
    ).of(len(rows))


def _of_check(run_id: str, record: dict[str, Any], detail: Detail) -> Findings:
    """The workloads of a suite whose claim does not hold; in full all of them, those last."""
    well = ("holds", "accepted")
    items = sorted(record["items"], key=lambda one: one["status"] in well)
    rows = []
    for item in items:
        if item["status"] in well and detail == "concise":
            continue
        change = item.get("change")
        ratio = f", {_interval(change)}" if change else ""
        asked = f"{item['claim']} on {item['device']}: {item.get('verdict') or item['status']}{ratio}"
        own = [f"run {item['run_id']}"] if item.get("run_id") else []
        evidence = [asked, *item.get("reasons", ()), *own]
        rows.append(Finding(id=item["name"], status=item["status"], evidence=evidence))
    counts = ", ".join(f"{count} {status}" for status, count in record["counts"].items())
    return Findings(
        run=run_id,
        verdict=f"{record['verdict']}: {counts}",
        rows=rows,
        links=[f"runs://{run_id}/items"],
        next="findings_list with the run that a row names" if rows else "",
    ).of(len(rows))


def _interval(change: dict[str, Any]) -> str:
    return f"{change['ratio']:.3g}× ({change['low']:.3g} to {change['high']:.3g})"


def _judged(record: dict[str, Any]) -> str:
    """The verdict with what it rests on: the ratio, and how many checks passed."""
    speed = record["speedup"]
    ratio = f", {_interval(speed)}" if speed else ""
    certified = "" if record["certified"] else ", not certified"
    statuses = [check["status"] for check in record["checks"]]
    apply = len(statuses) - statuses.count("not_applicable")
    times = f"; {text}" if (text := measured(record)) else ""
    passed = statuses.count("pass")
    return f"{record['verdict']}{certified}{ratio}{times}; {passed} of {apply} checks that apply passed"


def measured(record: dict[str, Any]) -> str:
    """The times behind a ratio: median, spread and number of each arm; empty where nothing was timed."""
    speed, timings = record.get("speedup"), record.get("timings")
    if not speed or not timings:
        return ""
    arms = [timings.get(arm, {}).get(speed["metric"]) for arm in ("baseline", "candidate")]
    if not all(arms):
        return ""
    told = [
        f"{one['p50_us'] / 1000:.4g} ms (spread {100 * one['spread']:.2g}%, n {one['n']})" for one in arms
    ]
    return f"{speed['metric']} time a call {told[0]} → {told[1]}"


def _few(texts: list[str], most: int, detail: Detail) -> list[str]:
    """The first ones and how many more there are; in full all of them."""
    left = len(texts) - most
    return texts if detail == "full" or left <= 0 else [*texts[:most], f"{left} more with detail=full"]


def _item(name: str | None) -> str | None:
    """A link to the checklist, of nothing but an id."""
    return f"handbook://{name}" if name and re.fullmatch(r"[a-z0-9.-]{1,80}", name) else None


def _told(finding: dict[str, Any]) -> str:
    where = f" at {finding['file']}:{finding['line']}" if finding["file"] else ""
    return f"{finding['id']}{where}"


def _first(text: str | None, most: int) -> str | None:
    return text if text is None else plain(text, most)
