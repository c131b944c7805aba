"""Tools that start long work, look after it and end it: profiles, comparisons, measured ceilings."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
from anyio import to_thread
from mcp.server.mcpserver import Context
from pydantic import Field

from trackside.mcp_server.answers import Job, Started
from trackside.mcp_server.plain_text import blanked, plain
from trackside.mcp_server.reply import Detail
from trackside.mcp_server.run_tools import measured
from trackside.mcp_server.scope import Scope
from trackside.records.errors import TracksideError

if TYPE_CHECKING:
    from trackside.store.jobs import Job as Kept
    from trackside.store.jobs import Jobs, JobState

__all__ = ["JobTools"]

_UNFINISHED: tuple[JobState, ...] = ("queued", "running")
# An assistant that starts more at once has lost its way: measurements on one device wait for each other.
_MOST_UNFINISHED = 8
_LOG_LINES = {"concise": 8, "full": 60}
_POLL_SECONDS, _TOLD_SECONDS = 0.2, 2.0
# Of compare: in less nothing is measured.
_LEAST_BUDGET = 5
# Below the time after which clients give a call up.
_LONGEST_WAIT = 50.0

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class JobTools:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._jobs: Jobs | None = None
        # Tools run in threads of their own: one opens, and one at a time counts and starts.
        self._opening = threading.Lock()
        self._starting = threading.Lock()

    def close(self) -> None:
        """Ends what was started here."""
        if self._jobs is not None:
            self._jobs.close()

    def profile_start(
        self,
        script: str,
        args: Annotated[list[str], Field(max_length=200, description="the script's own arguments")] = [],  # noqa: B006
        steps: Annotated[int, Field(ge=0, le=100_000, description="of each window; 0: chosen")] = 0,
        timeout: Seconds = 600.0,
        counters: Annotated[bool, Field(description="run it again under ncu")] = False,
    ) -> Started:
        """Runs a Python script under the profiler, as a job. Use it to find out where time goes; then job_get
        with wait, then hotspots_list and findings_list with its run."""
        self._scope.need_exec("profile_start")
        path = self._scope.file(script)
        self._scope.check_arguments(args)
        words = ["profile", "--json", "--timeout", f"{timeout:g}"]
        words += ["--steps", str(steps)] if steps else []
        words += ["--counters"] if counters else []
        # An absolute path is no option, and what follows it is the program's.
        return self._started([*words, str(path), *args])

    def compare_start(
        self,
        baseline: str,
        candidate: str,
        device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d{1,3})?)$")] = "cpu",
        claim: Literal["faster", "not-slower"] = "faster",
        quick: Annotated[bool, Field(description="15 s, never certified")] = False,
        budget: Annotated[float, Field(ge=0, le=3600, description="seconds, 5 or more; 0: 60")] = 0.0,
    ) -> Started:
        """Proves whether a candidate workload file is faster than the baseline and still right, as a job. Use
        it for every speed-up before you claim it; rejected means the outputs or the method are wrong."""
        self._scope.need_exec("compare_start")
        paths = [str(self._scope.workload(name)) for name in (baseline, candidate)]
        if 0 < budget < _LEAST_BUDGET:
            raise TracksideError(
                "usage",
                f"found a budget of {budget:g} s; at least {_LEAST_BUDGET}",
                "name more, or leave it out",
            )
        words = ["compare", "--json", "--device", device, "--claim", claim]
        words += ["--quick"] if quick else []
        words += ["--budget", f"{budget:g}"] if budget else []
        return self._started([*words, *paths])

    def ceilings_start(
        self,
        places: list[Literal["cpu", "disk", "cuda"]] = [],  # noqa: B006
        fresh: bool = False,
    ) -> Started:
        """Measures what this machine really does (bandwidth, FLOP/s, latencies), as a job of about a minute
        that loads it. Use it when machine_get has no ceilings."""
        self._scope.need_exec("ceilings_start")
        words = ["ceilings", "--json", "--folder", str(self._scope.folder), *(["--fresh"] if fresh else [])]
        return self._started([*words, *dict.fromkeys(places)])

    async def job_get(
        self,
        ctx: Context[Any, Any],
        job: Annotated[str, Field(max_length=200, description="id, or last")] = "last",
        wait: Annotated[
            float, Field(ge=0, le=_LONGEST_WAIT, description="seconds to wait for its end")
        ] = 0.0,
        detail: Detail = "concise",
    ) -> Job:
        """State, progress and outcome of a job: its run, and of a comparison verdict, speed-up and reasons.
        Use it with wait=50 until the state is done, failed or cancelled."""
        kept = await to_thread.run_sync(self._find, job)
        with anyio.move_on_after(wait):
            began, told = anyio.current_time(), -_TOLD_SECONDS
            while kept.state in _UNFINISHED:
                if (waited := anyio.current_time() - began) >= told + _TOLD_SECONDS:
                    told = waited
                    await ctx.report_progress(waited, wait, plain(f"{kept.state} {kept.progress}"))
                await anyio.sleep(_POLL_SECONDS)
                kept = await to_thread.run_sync(self._find, kept.id)
        return await to_thread.run_sync(self._told, kept, detail)

    async def job_cancel(
        self, job: Annotated[str, Field(max_length=200, description="id, or last")]
    ) -> Started:
        """Ends a job and every process it started. Use it for work that is not needed any more."""
        self._scope.need_exec("job_cancel")

        def cancel() -> Started:
            return _brief(self._open().cancel(self._find(job).id))

        return await to_thread.run_sync(cancel)

    def _open(self) -> Jobs:
        with self._opening:
            if self._jobs is None:
                from trackside.store.jobs import Jobs

                self._jobs = Jobs(self._scope.store.root)
            return self._jobs

    def _started(self, words: list[str]) -> Started:
        jobs = self._open()
        with self._starting:
            unfinished = [one for one in jobs.list() if one.state in _UNFINISHED]
            if len(unfinished) >= _MOST_UNFINISHED:
                raise TracksideError(
                    "busy",
                    f"found {len(unfinished)} jobs under way; at most {_MOST_UNFINISHED} may be",
                    "wait with job_get, or job_cancel what is not needed",
                )
            return _brief(jobs.start(words, cwd=self._scope.folder))

    def _find(self, reference: str) -> Kept:
        jobs = self._open()
        if reference != "last":
            return jobs.get(reference)
        newest = jobs.list(limit=1)
        if not newest:
            raise TracksideError("not-found", "there are no jobs", "profile_start or compare_start makes one")
        return newest[0]

    def _told(self, job: Kept, detail: Detail) -> Job:
        answer = Job(
            job=job.id,
            verb=job.verb,
            state=job.state,
            # The store cuts it, so a secret may be left in part.
            progress=blanked(job.progress, cut=True) if job.state != "done" else "",
            reason=self._reason(job),
            exit_code=job.exit_code,
            run=job.run_id or "",
            links=[f"runs://{job.run_id}"] if job.run_id else [],
            next=_next(job),
        )
        if job.state == "failed" or detail == "full" or _program_failed(job):
            answer.log = "\n".join(self._open().log(job.id, _LOG_LINES[detail]))
        if job.state not in _UNFINISHED and job.run_id:
            self._add_outcome(answer, job.run_id)
        return answer

    def _reason(self, job: Kept) -> str | None:
        """With what helps, which stands in the verb's answer."""
        if job.state != "failed" or job.reason is None:
            return job.reason
        error = (self._open().result(job.id) or {}).get("error")
        remedy = error.get("remedy") if isinstance(error, dict) else None
        return f"{job.reason}; remedy: {remedy}" if remedy else job.reason

    def _add_outcome(self, answer: Job, run_id: str) -> None:
        try:
            _, record = self._scope.record(run_id)
        except TracksideError:
            return  # ended before it had one; state and reason say so
        verdict, certified = record.get("verdict"), record.get("certified")
        answer.verdict = verdict if isinstance(verdict, str) else None
        answer.certified = certified if isinstance(certified, bool) else None
        speed = record.get("speedup")
        if isinstance(speed, dict):
            answer.speedup = [speed["ratio"], speed["low"], speed["high"]]
            answer.measured = measured(record)
        reasons = record.get("reasons")
        answer.reasons = [str(reason) for reason in reasons] if isinstance(reasons, list) else []


def _program_failed(job: Kept) -> bool:
    """A profile is done, whatever came of its program."""
    return job.state == "done" and job.verb == "profile" and bool(job.exit_code)


def _brief(job: Kept) -> Started:
    return Started(job=job.id, state=job.state, reason=job.reason, next=_next(job), run=job.run_id or "")


def _next(job: Kept) -> str:
    """Of our own words alone."""
    if job.state in _UNFINISHED:
        return f"job_get with job={job.id} and wait={_LONGEST_WAIT:g}"
    if job.state != "done" or (job.run_id is None and job.verb != "ceilings") or _program_failed(job):
        # Lists without a run would tell of an older one; of a program that failed the log says why.
        return f"job_get with job={job.id} and detail=full"
    after = {
        "profile": "hotspots_list and findings_list",
        "compare": "findings_list",
        "ceilings": "machine_get",
    }
    return after.get(job.verb, "") + (
        f" with run={job.run_id}" if job.run_id and job.verb != "ceilings" else ""
    )
