"""Selfcheck: full `compare` processes on workloads whose true ratio is known, and the error rates they show.

Each comparison is a child process of its own, so that the crash of one does not end the rest. Results are
saved after every child: an interrupt, a time limit or a kill keeps what is done.
"""

from __future__ import annotations

import gzip
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

import trackside
from trackside.comparison import selfcheck_rates
from trackside.comparison.selfcheck_plan import (
    EXPERIMENTS,
    Experiment,
    Trial,
    plan,
    source_sha256,
    write_workload,
)
from trackside.machine.facts import facts as machine_facts
from trackside.machine.facts import fingerprint
from trackside.records.errors import TracksideError
from trackside.records.selfcheck import SelfcheckRecord, SelfcheckRun, Session
from trackside.store.files import read_json, write_json
from trackside.store.runs import RunStore
from trackside.workload.sandbox import die_with_parent

__all__ = ["RESULTS_FILE", "Options", "run_selfcheck"]

Progress = Callable[[dict[str, Any]], None]

RESULTS_FILE: Final = "results.json"
RAW_FOLDER: Final = "raw"

# A child gets this many times its budget and this much on top before it counts as hung.
_PATIENCE, _GRACE_S = 2.0, 180.0
# How long a child may take to put away its workers after an interrupt.
_FAREWELL_S = 20.0
# No comparison is over before its processes have started.
_SHORTEST_S = 2.0
# Seldom enough not to disturb what is being measured.
_POLL_S = 0.2
# Fewer CPUs than this, and the start of one comparison would disturb the measurement of the other.
_CPUS_FOR_JOBS = 4


@dataclass(frozen=True)
class Options:
    """What `selfcheck` was asked."""

    device: str = "cpu"
    runs: int = 10
    budget: float = 60.0
    """Of each comparison, as `compare --budget`."""
    seconds: float | None = None
    """Of the whole selfcheck: what does not fit is not started, what is under way at the end is dropped."""
    experiments: tuple[Experiment, ...] = EXPERIMENTS
    workloads: tuple[str, ...] = ()
    out: Path | None = None
    jobs: int = 1
    store: Path | None = None

    @property
    def kind(self) -> str:
        return "cpu" if self.device == "cpu" else "cuda"


def run_selfcheck(options: Options, progress: Progress = lambda event: None) -> SelfcheckRecord:
    """Run all planned comparisons, or as many as fit, and rate them together with those already in `out`.

    Raises:
        TracksideError: wrong use; no such device here; `out` holds runs that must not be pooled with these.
    """
    _require(options)
    store = RunStore(options.store)
    # Read before a run is created: a refusal leaves nothing behind.
    earlier = _earlier(options, source_sha256())
    run = store.new_run("selfcheck")
    folder = (options.out or run.folder).absolute()
    (folder / RAW_FOLDER).mkdir(parents=True, exist_ok=True)
    book = _Book(options, folder, earlier, run.id)
    units = plan(options.kind, options.runs, options.experiments, options.workloads, book.units_done())
    planned = deque(trial for unit in units for trial in unit)
    book.planned = len(planned)
    progress({"phase": "plan", "planned": len(planned), "earlier": len(book.runs), "folder": str(folder)})
    with tempfile.TemporaryDirectory(prefix="trackside-selfcheck-") as scratch:
        crowd = _Crowd(options, Path(scratch), book, progress)
        try:
            crowd.work_off(planned)
        except KeyboardInterrupt:
            book.interrupted = True
        except TracksideError:
            store.write_record(run, book.to_record().to_dict() | {"status": "failed"})
            raise
        finally:
            crowd.dismiss()
    record = book.save()
    store.write_record(run, record.to_dict())
    return record


def _require(options: Options) -> None:
    if options.kind == "cuda" and not any(Path("/dev").glob("nvidia[0-9]*")):
        raise TracksideError(
            "device",
            "found no NVIDIA GPU here (no /dev/nvidia0)",
            "use `--device cpu`, or run on a machine with a GPU",
        )
    cpus = len(os.sched_getaffinity(0))
    if options.jobs > 1 and cpus < _CPUS_FOR_JOBS:
        raise TracksideError(
            "usage",
            f"found --jobs {options.jobs} on {cpus} CPUs: starting one comparison would disturb the other",
            f"use --jobs 1, or a machine with at least {_CPUS_FOR_JOBS} CPUs",
        )


def _earlier(options: Options, source: str) -> SelfcheckRecord | None:
    """What `out` holds already, if it may be pooled with what is to come."""
    if options.out is None:
        return None
    path = options.out / RESULTS_FILE
    try:
        record = SelfcheckRecord.from_dict(read_json(path))
    except FileNotFoundError:
        return None
    differs = [
        f"{name} {found}, now {now}"
        for name, found, now in (
            ("sources with sha256", record.source_sha256[:16], source[:16]),
            ("device", record.device, options.kind),
            ("budget", f"{record.budget:g} s", f"{options.budget:g} s"),
        )
        if found != now
    ]
    if differs:
        raise TracksideError(
            "usage",
            f"{path} holds runs of another kind, which must not be pooled with these: {'; '.join(differs)}",
            "give another --out folder, or use the sources and options of the earlier runs",
        )
    return record


@dataclass
class _Book:
    """All runs so far, on disk after each."""

    options: Options
    folder: Path
    earlier: SelfcheckRecord | None
    run_id: str
    source: str = field(default_factory=source_sha256)
    runs: list[SelfcheckRun] = field(default_factory=list)
    planned: int = 0
    interrupted: bool = False

    def __post_init__(self) -> None:
        self.runs = list(self.earlier.runs) if self.earlier else []
        self.sessions = list(self.earlier.sessions) if self.earlier else []
        self._before = len(self.runs)
        self._began = time.monotonic()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        machine = machine_facts()
        self._machine = {
            "fingerprint": fingerprint(machine),
            "cpu": machine.cpu.model,
            "cpus": len(os.sched_getaffinity(0)),
            "gpus": [asdict(gpu) for gpu in machine.gpus],
            "kernel": machine.kernel,
            "software": asdict(machine.software),
        }

    def units_done(self) -> dict[Experiment, int]:
        """Units by experiment: groups are numbered through all calls, so the highest number tells."""
        highest: dict[Experiment, int] = {}
        for run in self.runs:
            highest[run.experiment] = max(highest.get(run.experiment, 0), run.group + 1)
        return highest

    def add(self, trial: Trial, outcome: dict[str, Any]) -> SelfcheckRun:
        run = SelfcheckRun.model_validate(asdict(trial) | {"session": len(self.sessions)} | outcome)
        self.runs.append(run)
        self.save()
        return run

    def save(self) -> SelfcheckRecord:
        record = self.to_record()
        write_json(self.folder / RESULTS_FILE, record.to_dict())
        return record

    def to_record(self) -> SelfcheckRecord:
        session = Session(
            started=self._started,
            seconds=time.monotonic() - self._began,
            machine=self._machine,
            jobs=self.options.jobs,
            planned=self.planned,
            ran=len(self.runs) - self._before,
            interrupted=self.interrupted,
        )
        rated = selfcheck_rates.rates(self.runs)
        lines = selfcheck_rates.linearity(self.runs)
        findings = selfcheck_rates.find(self.runs, rated, lines)
        widths, seconds = selfcheck_rates.medians(self.runs)
        judged = any(run.verdict is not None for run in self.runs)
        return SelfcheckRecord(
            schema="trackside.selfcheck/1",
            run_id=self.run_id,
            device="cpu" if self.options.kind == "cpu" else "cuda",
            budget=self.options.budget,
            source_sha256=self.source,
            holds=not findings if judged else None,
            findings=findings,
            rates=rated,
            linearity=lines,
            half_width=widths,
            seconds_each=seconds,
            sessions=[*self.sessions, session],
            runs=self.runs,
            folder=str(self.folder),
            version=trackside.__version__,
        )


@dataclass
class _Child:
    """One comparison under way."""

    trial: Trial
    process: subprocess.Popen[bytes]
    folder: Path
    began: float

    def interrupt(self) -> None:
        # Its own group, so that Ctrl-C at a terminal reaches it once, through us, and not twice.
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)


class _Crowd:
    """The children: one after another, or with `jobs` the next one starting while the present one measures.

    The device lock is what keeps their measurements apart: a comparison starts its first template before it
    takes the lock, and holds it to the end.
    """

    def __init__(self, options: Options, scratch: Path, book: _Book, progress: Progress) -> None:
        self._options, self._scratch, self._book, self._progress = options, scratch, book, progress
        self._running: list[_Child] = []
        self._began = time.monotonic()
        self._count = 0
        self._longest = _SHORTEST_S

    def work_off(self, planned: deque[Trial]) -> None:
        while planned or self._running:
            while planned and len(self._running) < self._options.jobs and self._time_for_one():
                self._start(planned.popleft())
            if not self._running:
                return
            time.sleep(_POLL_S)
            for child in list(self._running):
                if child.process.poll() is not None:
                    self._running.remove(child)
                    self._harvest(child)
                elif time.monotonic() - child.began > _PATIENCE * self._options.budget + _GRACE_S:
                    child.interrupt()
            if self._left() <= 0:
                return

    def dismiss(self) -> None:
        """End what is under way; it is no result."""
        for child in self._running:
            child.interrupt()
        until = time.monotonic() + _FAREWELL_S
        for child in self._running:
            try:
                child.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        self._running.clear()

    def _left(self) -> float:
        limit = self._options.seconds
        return math.inf if limit is None else limit - (time.monotonic() - self._began)

    def _time_for_one(self) -> bool:
        """Whether another comparison would end in time, going by the longest so far."""
        return self._left() > self._longest

    def _start(self, trial: Trial) -> None:
        self._count += 1
        folder = self._scratch / f"{self._count:04d}"
        # Names of one length: the two files should differ in nothing but the extra work.
        plain, more = folder / "one" / f"{trial.workload}.py", folder / "two" / f"{trial.workload}.py"
        for path, percent in ((plain, 0.0), (more, trial.percent)):
            path.parent.mkdir(parents=True)
            write_workload(trial.workload, percent, path)
        baseline, candidate = (more, plain) if trial.swapped else (plain, more)
        command = [
            *(sys.executable, "-m", "trackside", "compare", str(baseline), str(candidate), "--json"),
            *("--device", self._options.device, "--budget", f"{self._options.budget:g}"),
        ]
        # One store for all, so that ceilings are measured once; its runs are moved out as they end.
        environment = os.environ | {"TRACKSIDE_HOME": str(self._scratch / "store")}
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                process_group=0,
                preexec_fn=die_with_parent,
            )
        self._running.append(_Child(trial, process, folder, time.monotonic()))

    def _harvest(self, child: _Child) -> None:
        seconds = time.monotonic() - child.began
        if source_sha256() != self._book.source:
            raise TracksideError(
                "usage",
                "Trackside's own sources changed while selfcheck ran: what follows would rate something else",
                "run it again with sources that stay as they are; runs that ended before are kept",
            )
        self._longest = max(self._longest, seconds)
        outcome = read_outcome(
            child.process.returncode,
            (child.folder / "out").read_bytes(),
            (child.folder / "err").read_text(errors="replace"),
        )
        document = outcome.pop("document", None)
        outcome["seconds"] = seconds
        if document is not None and outcome["run_id"]:
            outcome["raw"] = self._keep(document, outcome["run_id"])
        run = self._book.add(child.trial, outcome)
        shutil.rmtree(child.folder, ignore_errors=True)
        self._progress({"phase": "run", "run": run, "done": self._count, "planned": self._book.planned})

    def _keep(self, document: dict[str, Any], run_id: str) -> str:
        """The child's record and raw quads as one compressed file beside the results."""
        folder = self._scratch / "store" / "runs" / run_id
        quads = folder / "quads.json"
        kept = {"record": document, "quads": orjson.loads(quads.read_bytes()) if quads.exists() else None}
        name = f"{RAW_FOLDER}/{run_id}.json.gz"
        # No time stamp in the archive: the same quads give the same bytes.
        (self._book.folder / name).write_bytes(gzip.compress(orjson.dumps(kept), mtime=0))
        shutil.rmtree(folder, ignore_errors=True)
        return name


def read_outcome(code: int, out: bytes, err: str) -> dict[str, Any]:
    """What a finished `compare --json` said, as fields of a SelfcheckRun; its record under `document`."""
    try:
        found = orjson.loads(out)
    except ValueError:
        found = None
    if not isinstance(found, dict) or "verdict" not in found:
        error = found.get("error") if isinstance(found, dict) else None
        if isinstance(error, dict):
            text = f"{error.get('kind')}: {error.get('message')}"
        else:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            text = f"ended with {how} and no result; its output ends: {err[-500:]}"
        return {"verdict": None, "error": text}
    speed, statistics = found["speedup"] or {}, found["statistics"]
    clock = found["telemetry"].get("series", {}).get("gpu.sm_mhz", {})
    timing = found["timings"].get("baseline", {}).get("device", {})
    low, high = speed.get("low"), speed.get("high")
    return {
        "document": found,
        "verdict": found["verdict"],
        "certificate": found["certificate"],
        "ratio": speed.get("ratio"),
        "low": low,
        "high": high,
        "half_width": math.log(high / low) / 2 if low and high else None,
        "judge_ratio": speed.get("bounded"),
        "baseline_us": timing.get("p50_us"),
        "quads": statistics.get("quads"),
        "quads_kept": statistics.get("quads_kept"),
        "sm_clock_mhz": clock.get("median"),
        "reason": "; ".join(found["reasons"]) or None,
        "run_id": found["run_id"],
    }
