"""One comparison: processes, audit, probes, pairs, verdict. Whatever happens, a record."""

from __future__ import annotations

import os
import random
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import psutil

import trackside
from trackside.comparison import floor as physics
from trackside.comparison import tolerance
from trackside.comparison.audit import AUDIT_SLOTS, Study, audit_candidate, probe, study_baseline
from trackside.comparison.bench import BASELINE, CANDIDATE, Bench
from trackside.comparison.certificate import seal
from trackside.comparison.checks import Ledger, Stop
from trackside.comparison.measure import Measurement, Plan, measure, plan_batch, plan_flushes
from trackside.comparison.timings import summarise
from trackside.comparison.verdict import Reading, conclude, ratios, read, worst_of
from trackside.machine.facts import facts as machine_facts
from trackside.machine.facts import fingerprint
from trackside.machine.telemetry import Recorder
from trackside.records.compare import CompareRecord
from trackside.records.errors import TracksideError, printable
from trackside.store.lock import DeviceLock
from trackside.store.runs import Run, RunStore
from trackside.workload import formats
from trackside.workload.fleet import Fleet, Template

__all__ = ["Crew", "Options", "default_threads", "run_trial"]

Progress = Callable[[dict[str, Any]], None]

_PRELOAD = ("trackside.workload.worker", "trackside.comparison.reference")
# Forks of one template share hash seed and layout, so pairs take turns over several.
_TEMPLATES = 3
_TEMPLATE_SECONDS = 120.0
_PAIRS = {"cpu": 6, "cuda": 8}
_QUICK_PAIRS = 2
_DELTA = {"cpu": 0.02, "cuda": 0.005}
_BUDGET = 60.0
_BUILD_TIMEOUT = 300.0
# A call may take this many times the baseline's before it counts as hung.
_PATIENCE, _SHORTEST_TIMEOUT = 100, 5.0
# Beyond this share of stolen time nothing that was measured is believed.
_MOST_STOLEN = 0.10
# On larger guests spinning everywhere would cost the arms their clock speed.
_MOST_AWAKE = 8
# Left for the rest of the machine when a worker is watched for memory.
_RESERVE_BYTES = 1 << 30


@dataclass(frozen=True)
class Options:
    """What `compare` was asked."""

    baseline: Path
    candidate: Path
    device: str = "cpu"
    metric: str = "device"
    claim: str = "faster"
    budget: float = _BUDGET
    delta: float | None = None
    quick: bool = False
    seed: int | None = None
    pairs: int | None = None
    threads: int | None = None
    build_timeout: float = _BUILD_TIMEOUT
    wait: bool = True
    checks_only: bool = False
    """Everything but the timing: what the tests of the red team use."""
    disabled: frozenset[str] = frozenset()
    unprotected: tuple[str, ...] = ()
    store: Path | None = None

    @property
    def kind(self) -> str:
        return "cpu" if self.device == "cpu" else "cuda"

    def to_record(self) -> dict[str, Any]:
        shown = asdict(self)
        shown.update(
            {
                "baseline": str(self.baseline),
                "candidate": str(self.candidate),
                "disabled": sorted(self.disabled),
                "unprotected": list(self.unprotected),
                "store": str(self.store) if self.store else None,
            }
        )
        return shown


@dataclass
class _Outcome:
    """What one shape ended with."""

    shape: Any
    verdict: str
    reasons: list[str]
    ledger: Ledger
    study: Study | None = None
    measurement: Measurement | None = None
    reading: Reading | None = None
    floor: dict[str, Any] | None = None
    base_alone: dict[str, float] = field(default_factory=dict)


class Crew:
    """The supervisor and the worker templates; several trials in a row may share one."""

    def __init__(self, threads: int, unprotected: Sequence[str] = ()) -> None:
        memory = int(psutil.virtual_memory().available - _RESERVE_BYTES)
        self.fleet = Fleet(Path(tempfile.mkdtemp(prefix="trackside-")), threads, memory, unprotected)
        self.templates: list[Template] = []

    def start(self, count: int) -> None:
        """Have at least `count` templates; only the first is waited for."""
        while len(self.templates) < count:
            self.templates.append(self.fleet.start_template(len(self.templates), _PRELOAD))
        self.templates[0].wait(_TEMPLATE_SECONDS)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc: object) -> None:
        self.fleet.close()


def run_trial(
    options: Options, progress: Progress = lambda event: None, crew: Crew | None = None
) -> CompareRecord:
    """Compare and leave a record, also when the run fails or is interrupted.

    Raises:
        TracksideError: wrong use, an unusable baseline, or no way to run here; a record is written too.
    """
    store = RunStore(options.store)
    run = store.new_run("compare")
    try:
        base = formats.describe(options.baseline, "baseline")
        cand = formats.describe(options.candidate, "candidate", base.format)
        _require_device(options)
    except TracksideError as error:
        with suppress(TracksideError):
            store.write_record(run, seal(_unstarted(options, run, _reason(error))).to_dict())
        raise
    trial = _Trial(options, base, cand, store, run, progress, crew)
    return trial.run()


def _unstarted(options: Options, run: Run, reason: str) -> CompareRecord:
    """The record of a comparison whose files could not be read."""
    return CompareRecord.model_validate(
        {
            "run_id": run.id,
            "status": "failed",
            "verdict": "inconclusive",
            "certified": False,
            "certificate": "none",
            "claim": options.claim,
            "holds": False,
            "speedup": None,
            "checks": [],
            "reasons": [printable(reason)],
            "options": _plain(options.to_record()),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": 0.0,
            "version": trackside.__version__,
        }
    )


def _plain(value: Any) -> Any:
    """Text that JSON can hold: a file name need not be UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def default_threads(kind: str) -> int:
    """Threads of each arm: all cores but the judge's on a CPU, a few for the host side of GPU work."""
    count = len(os.sched_getaffinity(0))
    return max(1, count - 1) if kind == "cpu" else max(1, min(8, count // 2))


def _share_cpus(allowed: list[int], kind: str, threads: int) -> tuple[list[int], list[int]]:
    """Cores for the judge with the reference, and for the arms; no core for both where there are enough."""
    if kind == "cpu":
        return allowed[:1], allowed[1 : 1 + threads] or allowed
    return (allowed[:2], allowed[2:]) if len(allowed) >= 4 else (allowed, allowed)


def _require_device(options: Options) -> None:
    if options.kind == "cuda" and not any(Path("/dev").glob("nvidia[0-9]*")):
        raise TracksideError(
            "device",
            "found no NVIDIA GPU here (no /dev/nvidia0)",
            "use `--device cpu`, or run on a machine with a GPU",
        )


class _Trial:
    def __init__(
        self,
        options: Options,
        base: formats.FileFacts,
        cand: formats.FileFacts,
        store: RunStore,
        run: Run,
        progress: Progress,
        crew: Crew | None = None,
    ) -> None:
        self.crew = crew
        self.options, self.base, self.cand = options, base, cand
        self.store, self.run_, self.progress = store, run, progress
        self.began = self.budget_from = time.monotonic()
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self.files = {BASELINE: base.path.resolve(), CANDIDATE: cand.path.resolve()}
        self.rng = random.Random(options.seed if options.seed is not None else secrets.randbits(128))
        self.machine = machine_facts()
        self.telemetry: dict[str, Any] = {}
        self.environment: dict[str, Any] = {}
        self.outcomes: list[_Outcome] = []
        allowed = sorted(os.sched_getaffinity(0))
        self.threads = options.threads or default_threads(options.kind)
        self.judge_cpus, self.cpus = _share_cpus(allowed, options.kind, self.threads)

    # -- the frame around everything ---------------------------------------------------------------

    def run(self) -> CompareRecord:
        failure: BaseException | None = None
        with _one_interrupt(), ExitStack() as stack:
            try:
                self._with_processes(stack)
            except BaseException as caught:
                failure = caught
                reason = _reason(caught)
                with suppress(TracksideError):
                    self._write(self._record(status="failed", verdict="inconclusive", reasons=[reason]))
        if failure is not None:
            raise failure
        return self._write(self._record())

    def _write(self, record: CompareRecord) -> CompareRecord:
        sealed = seal(record)
        self.store.write_record(self.run_, sealed.to_dict())
        return sealed

    def _with_processes(self, stack: ExitStack) -> None:
        options = self.options
        crew = self.crew or stack.enter_context(Crew(self.threads, options.unprotected))
        crew.fleet.scope = crew.fleet.folder / self.run_.id
        # In the reference's own folder: it alone writes there, every worker may read.
        shared = crew.fleet.scope / "reference" / "shared"
        shared.mkdir(parents=True)
        stack.callback(crew.fleet.sweep)
        fallback = self._record(
            status="failed", verdict="inconclusive", reasons=["the judge ended before the verdict"]
        )
        crew.fleet.promise_record(self.run_, seal(fallback).to_dict())
        self.progress({"phase": "start", "run_id": self.run_.id})
        crew.start(1)
        lock = DeviceLock(
            self._lock_key(),
            wait=options.wait,
            verb="compare",
            on_wait=lambda holder: self.progress({"phase": "waiting", "holder": holder}),
        )
        if not options.checks_only:
            stack.enter_context(lock)
            self.budget_from = time.monotonic()
            # Before the lock is given back: the next run must not meet this one's workers.
            stack.callback(crew.fleet.sweep)
        gpu = _gpu_index(options.device) if options.kind == "cuda" else None
        recorder = Recorder(gpu_index=gpu, cpus=self.cpus)
        recorder.start()
        stack.callback(lambda: self._keep_telemetry(recorder))
        if not options.checks_only:
            crew.start(_TEMPLATES)
        readable = {
            sys.prefix,
            sys.base_prefix,
            *(p for p in sys.path if p),
            str(Path(trackside.__file__).parent.parent),
            str(shared),
            *(str(_parent(p)) for p in self.files.values()),
        }
        bench = Bench(
            crew.fleet,
            crew.templates,
            "cpu" if gpu is None else f"cuda:{gpu}",
            self.cpus,
            self.judge_cpus,
            sorted(readable),
            options.build_timeout,
            Ledger(options.disabled),
            self.rng,
        )
        facts = bench.start_reference(self.files[BASELINE])
        shapes = facts["shapes"] or [None]
        for number, shape in enumerate(shapes):
            self.progress({"phase": "shape", "shape": shape, "number": number + 1, "count": len(shapes)})
            bench.ledger = Ledger(options.disabled)
            self.outcomes.append(self._one_shape(bench, facts, shape, shared, len(shapes), recorder))
            for arm in list(bench.arms):
                bench.arms.pop(arm).process.kill()

    def _lock_key(self) -> str:
        if self.options.kind == "cpu":
            return "cpu"
        index = _gpu_index(self.options.device)
        gpus = self.machine.gpus
        return f"gpu-{gpus[index].uuid}" if index < len(gpus) and gpus[index].uuid else f"gpu-{index}"

    def _keep_telemetry(self, recorder: Recorder) -> None:
        telemetry = recorder.stop()
        self.telemetry = telemetry.to_record()
        if not self.options.checks_only:
            telemetry.save(self.run_.folder / "telemetry.npz")

    # -- one shape ---------------------------------------------------------------------------------

    def _one_shape(
        self, bench: Bench, facts: dict[str, Any], shape: Any, shared: Path, shapes: int, recorder: Recorder
    ) -> _Outcome:
        ledger = bench.ledger
        outcome = _Outcome(shape, "inconclusive", [], ledger)
        try:
            self._audit(bench, facts, shape, shared, outcome)
            ledger.settle()
            if self.options.checks_only:
                outcome.reasons = ["checks only: nothing was timed"]
                return outcome
            self._measure(bench, facts, shared, outcome, shapes, recorder)
        except Stop as stop:
            outcome.verdict = stop.outcome
            outcome.reasons = [f"{stop.check}: {stop.detail}"]
        return outcome

    def _audit(
        self, bench: Bench, facts: dict[str, Any], shape: Any, shared: Path, outcome: _Outcome
    ) -> None:
        options = self.options
        seed = bench.seed()
        state_file = shared / "state.pt" if facts["format"] == "kernelbench" else None
        bench.shape, bench.derive, bench.output_bytes, bench.seeded = shape, False, 1 << 16, True
        bench.contract = {"inputs": [], "state": [], "restore": False}
        bench.ask("contract", inputs=[], state=[])
        self.progress({"phase": "baseline"})
        facts["digest"] = bench.ask("setup", seed=seed, save=str(state_file) if state_file else None)[
            "digest"
        ]
        began = time.monotonic()
        described = bench.ask("specify", seeds=[bench.seed(), bench.seed()], shape=shape)
        draw_seconds = (time.monotonic() - began) / 2
        bench.spec = described["spec"]
        study = outcome.study = study_baseline(
            bench, self.files[BASELINE], self.base.format, dict(facts), seed, options.build_timeout
        )
        # Beside a wrong baseline, or without an oracle, nothing can be said of the candidate.
        bench.ledger.settle()
        timeout = max(_SHORTEST_TIMEOUT, _PATIENCE * study.run_ns / 1e9)
        bench.arms[BASELINE].call_timeout = max(timeout, 60.0)
        self.progress({"phase": "audit"})
        arm = audit_candidate(
            bench,
            self.files[CANDIDATE],
            self.base.format,
            study,
            seed,
            timeout,
            str(state_file) if state_file else None,
        )
        self.progress({"phase": "probes"})
        probe(bench, study)
        outcome.base_alone["build_baseline"] = study.build_seconds
        outcome.base_alone["build_candidate"] = arm.build_seconds
        if described["derivable"] and draw_seconds > 0.02 and draw_seconds > study.run_ns / 1e9:
            while bench.ask("draw", id=bench.id(), kind="base", seed=bench.seed(), shape=shape)["more"]:
                pass
            bench.derive = True

    def _measure(
        self,
        bench: Bench,
        facts: dict[str, Any],
        shared: Path,
        outcome: _Outcome,
        shapes: int,
        recorder: Recorder,
    ) -> None:
        options, study, ledger = self.options, outcome.study, bench.ledger
        assert study is not None
        self.progress({"phase": "floor"})
        outcome.floor = physics.prepare(
            bench, study, options.device, self.store.root / "machine", self.cpus, self.machine, ledger
        )
        bench.seeded = study.random
        flushes, host_bound = self._flushes(bench, study)
        batch = plan_batch(study, bench.spec["bytes"], bench.output_bytes, options.device, flushes)
        left = options.budget * (len(self.outcomes) + 1) / shapes - (time.monotonic() - self.budget_from)
        pairs = options.pairs or (_QUICK_PAIRS if options.quick else _PAIRS[options.kind])
        delta = options.delta if options.delta is not None else _DELTA[options.kind]
        plan = Plan(
            options.device, pairs, batch, flushes, delta, options.metric, max(4.0, 0.9 * left), host_bound
        )
        # Alone means alone: a frozen candidate could have itself woken.
        bench.arms.pop(CANDIDATE).process.kill()
        alone = _alone(bench, plan)
        bench.arms.pop(BASELINE).process.kill()
        recorder.mark("pairs")
        state_file = shared / "state.pt" if facts["format"] == "kernelbench" else None
        timeout = max(_SHORTEST_TIMEOUT, _PATIENCE * study.run_ns * batch / 1e9)
        with bench.fleet.awake(self._idle_prone_cpus()):
            measurement = outcome.measurement = measure(
                bench, plan, study, self.files, self.base.format, timeout, state_file, self.progress
            )
        bench.arms.pop(CANDIDATE).process.kill()
        alone_after = _alone(bench, plan)
        outcome.base_alone.update({"before_ns": alone, "after_ns": alone_after})
        ledger.passed("worker-survives", f"{measurement.calls + study.checked} calls answered")
        ledger.passed("protocol-intact", "only our own messages")
        ledger.passed(
            "output-matches-oracle",
            f"{study.checked} calls checked, of the {measurement.calls} timed ones chosen after they ran; "
            f"{study.screened} compared with the baseline's on the same inputs",
        )
        outcome.reading = read(measurement, ledger)
        self._judge_machine(outcome, plan, recorder)
        physics.judge(outcome.floor, measurement, ledger)
        ledger.settle()
        outcome.verdict, outcome.reasons = conclude(outcome.reading, delta, ledger)
        ledger.settle()

    def _idle_prone_cpus(self) -> list[int]:
        """The arms' CPUs where a hypervisor would take them away between slots."""
        guest = self.machine.virtualisation not in (None, "none")
        few = len(self.cpus) <= _MOST_AWAKE
        return self.cpus if guest and few and self.options.kind == "cpu" else []

    def _flushes(self, bench: Bench, study: Study) -> tuple[int, bool]:
        """How many flushes hide the host's part of a call in both arms; measures the baseline's time too."""
        if self.options.kind == "cpu":
            return 0, False
        host: list[float] = []
        for name in (BASELINE, CANDIDATE):
            slots = []
            for _ in range(3):
                sets = bench.draw_many(AUDIT_SLOTS)
                slots.append(bench.run(bench.arms[name], sets, [bench.seed() for _ in sets], flushes=2))
                bench.forget(slots[-1:])
            host.append(min(s.enqueued_ns / len(s.calls) for s in slots))
            if name == BASELINE:
                study.run_ns = min(c.ns for s in slots for c in s.calls)
        study.enqueue_ns = max(host)
        return plan_flushes(max(host) - study.run_ns)

    def _judge_machine(self, outcome: _Outcome, plan: Plan, recorder: Recorder) -> None:
        """Whether the machine, or the other arm, disturbed the measurement."""
        ledger, measurement = outcome.ledger, outcome.measurement
        assert measurement is not None
        quads = [q for p in measurement.pairs for q in p.quads]
        if quads:
            window = quads[0].began, quads[-1].ended
            noticed = recorder.disturbances(*window, self.cpus)
            if self._idle_prone_cpus():
                # What keeps the CPUs awake waits for them all the time.
                noticed = [text for text in noticed if not text.startswith("pressure:")]
            stolen = recorder.stolen(*window, self.cpus) if plan.kind == "cpu" else 0.0
            if stolen > _MOST_STOLEN:
                ledger.failed(
                    "machine-quiet",
                    f"the hypervisor kept a CPU from the arms for {stolen:.0%} of the time, and "
                    f"{_MOST_STOLEN:.0%} at most may be: run again on a quieter machine",
                )
            elif noticed:
                ledger.warned("machine-quiet", "; ".join(noticed))
            elif plan.kind == "cuda":
                ledger.passed("machine-quiet", "no throttling, no other process on the GPU")
        beside = [
            [
                t
                for q in p.quads
                if q.mode in ("plain", "cold")
                for t, letter in zip(q.ns, q.order, strict=True)
                if letter == "A"
            ]
            for p in measurement.pairs
        ]
        # The best pair: who is hindered on purpose is hindered in every one.
        middle = min((median(times) for times in beside if times), default=0.0)
        alone = min(outcome.base_alone["before_ns"], outcome.base_alone["after_ns"])
        slack = 1.3 if plan.kind == "cpu" else 1.15
        if middle > slack * alone:
            ledger.failed(
                "baseline-undisturbed",
                f"the baseline takes {middle / 1e3:.1f} µs beside the candidate, {alone / 1e3:.1f} µs alone",
            )
        else:
            ledger.passed(
                "baseline-undisturbed",
                f"{middle / 1e3:.1f} µs beside the candidate, "
                f"{outcome.base_alone['before_ns'] / 1e3:.1f} µs alone before, "
                f"{outcome.base_alone['after_ns'] / 1e3:.1f} µs after",
            )

    # -- the record --------------------------------------------------------------------------------

    def _record(
        self, status: str = "done", verdict: str | None = None, reasons: list[str] | None = None
    ) -> CompareRecord:
        options = self.options
        shapes = [_shape_record(o) for o in self.outcomes]
        verdict = verdict or worst_of([o.verdict for o in self.outcomes])
        # Of several shapes with that verdict, the one with the smallest ratio speaks for the run.
        alike = [s for s, o in zip(shapes, self.outcomes, strict=True) if o.verdict == verdict]
        main = min(alike, key=lambda s: s["speedup"]["ratio"] if s["speedup"] else 0.0, default=None)
        certificate = self._certificate(verdict) if status == "done" else "none"
        holds = verdict == "faster" or (options.claim == "not-slower" and verdict == "equivalent")
        record = CompareRecord.model_validate(
            _plain(
                {
                    "run_id": self.run_.id,
                    "status": status,
                    "verdict": verdict,
                    "certified": certificate != "none",
                    "certificate": certificate,
                    "claim": options.claim,
                    "holds": holds,
                    "speedup": main["speedup"] if main else None,
                    "checks": main["checks"] if main else [],
                    "reasons": reasons if reasons is not None else (main or {}).get("reasons", []),
                    "accuracy": main["accuracy"] if main else {},
                    "timings": main["timings"] if main else {},
                    "memory": main["memory"] if main else {},
                    "floor": main["floor"] if main else None,
                    "statistics": main["statistics"] if main else {},
                    "shapes": shapes
                    if len(shapes) > 1 or (shapes and shapes[0]["shape"] is not None)
                    else [],
                    "baseline": {
                        "path": str(self.base.path),
                        "format": self.base.format,
                        "sha256": self.base.sha256,
                        "files": self.base.files,
                    },
                    "candidate": {
                        "path": str(self.cand.path),
                        "format": self.cand.format,
                        "sha256": self.cand.sha256,
                        "files": self.cand.files,
                    },
                    "environment": {
                        "fingerprint": fingerprint(self.machine),
                        "device": options.device,
                        "threads": self.threads,
                        "cpus": self.cpus,
                        "cpu": self.machine.cpu.model,
                        "gpus": [g.name for g in self.machine.gpus],
                        "kernel": self.machine.kernel,
                        "software": asdict(self.machine.software),
                        "folder": os.getcwd(),
                        "flags": self.outcomes[0].study.flags
                        if self.outcomes and self.outcomes[0].study
                        else {},
                    },
                    "telemetry": self.telemetry,
                    "options": options.to_record(),
                    "started": self.started,
                    "seconds": time.monotonic() - self.began,
                    "version": trackside.__version__,
                }
            )
        )
        if status == "done":
            self._save_quads()
        return record

    def _certificate(self, verdict: str) -> str:
        options = self.options
        if (
            options.quick
            or options.checks_only
            or options.disabled
            or options.unprotected
            or verdict not in ("faster", "slower", "equivalent")
        ):
            return "none"
        lowering = (
            "isolation",
            "task-is-sensitive",
            "holds-on-probes",
            "oracle-available",
            "machine-quiet",
        )
        results = [o.ledger.results.get(name) for o in self.outcomes for name in lowering]
        if options.seed is not None or any(r is None or r.status in ("warn", "unknown") for r in results):
            return "reduced"
        return "full"

    def _save_quads(self) -> None:
        if any(o.measurement for o in self.outcomes):
            import orjson

            data = [
                {
                    "shape": o.shape,
                    "plan": asdict(o.measurement.plan),
                    "pairs": [[q.to_record() for q in p.quads] for p in o.measurement.pairs],
                }
                for o in self.outcomes
                if o.measurement
            ]
            (self.run_.folder / "quads.json").write_bytes(orjson.dumps(data))


def _alone(bench: Bench, plan: Plan) -> float:
    """The baseline's time per call with the other arm gone: the middle of a few, the first aside."""
    times = []
    for _ in range(9):
        slot = bench.run(
            bench.arms[BASELINE], bench.draw_timed(), [bench.seed()], flushes=max(1, plan.flushes)
        )
        times.append(slot.calls[0].ns)
        bench.forget([slot])
    return median(times[1:])


def _shape_record(o: _Outcome) -> dict[str, Any]:
    speedup = None
    statistics: dict[str, Any] = {}
    if o.reading is not None and o.measurement is not None:
        r, plan = o.reading, o.measurement.plan
        judge = ratios(r.judge) if r.judge is not None else {}
        speedup = {
            **ratios(r.speed),
            "confidence": r.speed.confidence,
            "metric": plan.metric,
            "bounded": judge.get("ratio"),
            "bounded_low": judge.get("low"),
            "bounded_high": judge.get("high"),
            "lie_us": r.lie_us,
        }
        statistics = {
            "pairs": len(o.measurement.pairs),
            "quads": r.quads,
            "quads_kept": r.kept,
            "calls_per_slot": plan.batch,
            "delta": plan.delta,
            "total": ratios(r.total),
            "wall": ratios(r.wall) if r.wall else None,
            "device": ratios(r.device) if r.device else None,
            "candidate_calls": o.measurement.calls,
            "flushes": plan.flushes,
            "host_bound": plan.host_bound,
        }
    study = o.study
    accuracy: dict[str, Any] = {}
    if study is not None:
        accuracy = {
            "oracle": study.oracle.get("kind"),
            "checked_calls": study.checked,
            "probes": study.probes,
            "outputs": [
                {
                    "path": path,
                    "baseline": tolerance.relative_error(bins),
                    "candidate": tolerance.relative_error(study.candidate_bins[path])
                    if path in study.candidate_bins
                    else None,
                }
                for path, bins in list(study.bins.items())[:50]
            ],
        }
    timings, memory = summarise(o.measurement, o.base_alone) if o.measurement is not None else ({}, {})
    return {
        "shape": o.shape,
        "verdict": o.verdict,
        "speedup": speedup,
        "checks": o.ledger.to_records(),
        "reasons": o.reasons,
        "accuracy": accuracy,
        "timings": timings,
        "memory": memory,
        "floor": o.floor,
        "statistics": statistics,
    }


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """Let the first Ctrl-C through and no other, so that cleaning up is not cut short."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _reason(failure: BaseException) -> str:
    if isinstance(failure, TracksideError):
        return f"{failure.kind}: {failure.message}"
    if isinstance(failure, KeyboardInterrupt):
        return "interrupted before the verdict"
    return f"internal: {type(failure).__name__}: {failure}"


def _gpu_index(device: str) -> int:
    _, _, number = device.partition(":")
    return int(number or 0)


def _parent(path: Path) -> Path:
    return path if path.is_dir() else path.parent
