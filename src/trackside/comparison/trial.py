"""One comparison: processes, audit, probes, pairs, verdict. Whatever happens, a record."""

from __future__ import annotations

import hashlib
import math
import os
import random
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import trackside
from trackside.comparison import floor as physics
from trackside.comparison.arms import BASELINE, CANDIDATE, Slot
from trackside.comparison.audit import audit_candidate
from trackside.comparison.baseline import study_baseline
from trackside.comparison.bench import Bench
from trackside.comparison.certificate import seal
from trackside.comparison.checks import Ledger, Stop
from trackside.comparison.crew import Crew, default_threads, share_cpus
from trackside.comparison.measure import MAX_FLUSHES, HostTime, Plan, measure, plan_batch, plan_flushes
from trackside.comparison.options import DEFAULT_PAIRS, QUICK_PAIRS, Options
from trackside.comparison.probing import probe, probe_in_a_row, probe_shapes, report_probes
from trackside.comparison.state_probe import probe_state
from trackside.comparison.study import AUDIT_SLOTS, Study
from trackside.comparison.trial_record import Context, Outcome, build_record, save_quads, unstarted_record
from trackside.comparison.verdict import conclude, read, worst_of
from trackside.machine.facts import facts as machine_facts
from trackside.machine.facts import gpu_numbered
from trackside.machine.telemetry import Kind, Recorder
from trackside.records.compare import CompareRecord
from trackside.records.devices import gpu_index
from trackside.records.errors import TracksideError
from trackside.store.files import store_errors
from trackside.store.lock import DeviceLock
from trackside.store.runs import Run, RunStore
from trackside.workload import formats

__all__ = ["Crew", "Options", "default_threads", "run_trial"]

Progress = Callable[[dict[str, Any]], None]

# Forks of one template share hash seed and layout, so pairs take turns over several.
_TEMPLATES = 3
_DELTA = {"cpu": 0.02, "cuda": 0.005}
# A call may take this many times the baseline's before it counts as hung, and each further one in a slot so
# many times more: all of them would have a hang wait for minutes.
_PATIENCE, _SHORTEST_TIMEOUT, _FURTHER_PATIENCE = 100, 5.0, 20
# Flushes before the calls that show how many are needed.
_TRIED_FLUSHES, _TRIALS = 2, 3
# Times its speed alone at which a baseline counts as hindered; what is less, noise can do.
_HINDERED = {"cpu": 1.3, "cuda": 1.15}
# Long enough that a machine which changes its speed within a second shows more than one of them.
_ALONE_SECONDS, _ALONE_CALLS, _MOST_ALONE_CALLS = 0.7, 9, 60
# Beyond this share of stolen time nothing that was measured is believed.
_MOST_STOLEN = 0.10
# On larger guests spinning everywhere would cost the arms their clock speed.
_MOST_AWAKE = 8


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
            store.write_record(run, seal(unstarted_record(options, run, _reason(error))).to_dict())
        raise
    trial = _Trial(options, base, cand, store, run, progress, crew)
    return trial.run()


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
        self.options = options
        self.store, self.run_, self.progress = store, run, progress
        self.files = {BASELINE: base.path.resolve(), CANDIDATE: cand.path.resolve()}
        self.rng = random.Random(options.seed if options.seed is not None else secrets.randbits(128))
        self.outcomes: list[Outcome] = []
        allowed = sorted(os.sched_getaffinity(0))
        threads = default_threads(options.kind) if options.threads is None else options.threads
        self.judge_cpus, self.cpus = share_cpus(allowed, options.kind, threads)
        if options.checks_only:
            # Nothing is timed: who has work takes any CPU.
            self.judge_cpus = self.cpus = allowed
        self.context = Context(base, cand, machine_facts(), threads, self.cpus)
        self.budget_from = self.context.began

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
                    self._write(reason)
        if failure is not None:
            raise failure
        try:
            with store_errors(self.run_.folder, "write raw quads to"):
                save_quads(self.run_.folder, self.outcomes)
            return self._write()
        except TracksideError as error:
            # Minutes of work: who cannot have the record shall at least know what it would say.
            verdict = worst_of([outcome.verdict for outcome in self.outcomes])
            raise TracksideError(
                error.kind, f"{error.message}; not recorded, so not certified: {verdict}", error.remedy
            ) from error

    def _write(self, failure: str | None = None) -> CompareRecord:
        sealed = seal(build_record(self.options, self.run_, self.context, self.outcomes, failure))
        self.store.write_record(self.run_, sealed.to_dict())
        return sealed

    def _with_processes(self, stack: ExitStack) -> None:
        options = self.options
        crew = self.crew or stack.enter_context(
            Crew(self.context.threads, options.unprotected, list(self.files.values()))
        )
        crew.fleet.scope = crew.fleet.folder / self.run_.id
        # In the reference's own folder: it alone writes there, every worker may read.
        shared = crew.fleet.scope / "reference" / "shared"
        shared.mkdir(parents=True)
        stack.callback(crew.fleet.sweep)
        fallback = build_record(options, self.run_, self.context, [], "the judge ended before the verdict")
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
            asked = time.monotonic()
            stack.enter_context(lock)
            # Waiting for others is not on this run's account; starting up is.
            self.budget_from += time.monotonic() - asked
            # Before the lock is given back: the next run must not meet this one's workers.
            stack.callback(crew.fleet.sweep)
        # The recorder's thread, started below, inherits this.
        stack.enter_context(_pinned(self.judge_cpus))
        crew.fleet.pin(self.judge_cpus)
        recorder = Recorder(gpu_index=self._gpu(), cpus=self.cpus)
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
            "cpu" if options.kind == "cpu" else f"cuda:{gpu_index(options.device)}",
            self.cpus,
            self.judge_cpus,
            sorted(readable),
            options.build_timeout,
            Ledger(options.disabled),
            self.rng,
        )
        bench.others = lambda: int(recorder.latest("gpu.foreign_processes") or 0)
        facts = bench.start_reference(self.files[BASELINE])
        shapes = facts["shapes"] or [None]
        for number, shape in enumerate(shapes):
            self.progress({"phase": "shape", "shape": shape, "number": number + 1, "count": len(shapes)})
            bench.ledger = Ledger(options.disabled)
            bench.shape = number if facts["shapes"] else None
            self.outcomes.append(self._one_shape(bench, facts, shape, shared, len(shapes), recorder))
            bench.stop(*bench.arms)

    def _lock_key(self) -> str:
        gpu = self._gpu()
        # What CUDA_VISIBLE_DEVICES names may hold anything.
        return "cpu" if gpu is None else "gpu-" + re.sub("[^A-Za-z0-9]", "-", str(gpu))

    def _gpu(self) -> int | str | None:
        """What NVML calls the GPU that is compared on, which CUDA may number otherwise; None on a CPU."""
        number = gpu_index(self.options.device)
        return None if number is None else gpu_numbered(self.context.machine, number)

    def _keep_telemetry(self, recorder: Recorder) -> None:
        telemetry = recorder.stop()
        self.context.telemetry = record = telemetry.to_record()
        if self.options.checks_only:
            return
        path = self.run_.folder / "telemetry.npz"
        try:
            telemetry.save(path)
        except OSError as error:
            path.unlink(missing_ok=True)
            record["unknown"].append({"what": "raw telemetry", "why": f"not kept: {error.strerror}"})

    # -- one shape ---------------------------------------------------------------------------------

    def _one_shape(
        self, bench: Bench, facts: dict[str, Any], shape: Any, shared: Path, shapes: int, recorder: Recorder
    ) -> Outcome:
        ledger = bench.ledger
        outcome = Outcome(shape, "inconclusive", [], ledger)
        try:
            self._audit(bench, facts, shared, outcome)
            self._judge_files(ledger)
            ledger.settle()
            if self.options.checks_only:
                outcome.reasons = ["checks only: nothing was timed"]
                return outcome
            self._measure(bench, facts, shared, outcome, shapes, recorder)
        except Stop as stop:
            outcome.verdict = stop.outcome
            outcome.reasons = [f"{stop.check}: {stop.detail}"]
        return outcome

    def _audit(self, bench: Bench, facts: dict[str, Any], shared: Path, outcome: Outcome) -> None:
        options = self.options
        seed = bench.seed()
        state_file = shared / "state.pt" if facts["format"] == "kernelbench" else None
        bench.derive, bench.output_bytes = False, 1 << 16
        bench.bent_inputs.clear()
        bench.contract = {"inputs": [], "state": [], "names": {}, "restore": False}
        bench.ask("contract", inputs=[], state=[])
        self.progress({"phase": "baseline"})
        facts["digest"] = bench.ask("setup", seed=seed, save=str(state_file) if state_file else None)[
            "digest"
        ]
        described = bench.ask("specify", seeds=[bench.set_seed(), bench.set_seed()], shape=bench.shape)
        bench.spec = described["spec"]
        study = outcome.study = study_baseline(
            bench,
            self.files[BASELINE],
            self.context.baseline.format,
            dict(facts),
            seed,
            options.build_timeout,
        )
        # Beside a wrong baseline, or without an oracle, nothing can be said of the candidate.
        bench.ledger.settle()
        timeout = _call_timeout(study)
        bench.further_timeout = _FURTHER_PATIENCE * study.run_ns / 1e9
        bench.arms[BASELINE].call_timeout = max(timeout, 60.0)
        self.progress({"phase": "audit"})
        arm = audit_candidate(
            bench,
            self.files[CANDIDATE],
            self.context.baseline.format,
            study,
            seed,
            timeout,
            str(state_file) if state_file else None,
        )
        self.progress({"phase": "probes"})
        rows = probe_state(bench, study, self.files, self.context.baseline.format, seed)
        ran, rows = probe(bench, study), probe_in_a_row(bench, study) + rows
        if not self.outcomes:
            # Once: these sizes are the task's, not the timed shape's.
            timed = facts["shapes"]
            others = {len(timed) + i: s for i, s in enumerate(facts["probe_shapes"]) if s not in timed}
            ran += probe_shapes(bench, study, others)
        report_probes(bench.ledger, ran, rows)
        outcome.base_alone["build_baseline"] = study.build_seconds
        outcome.base_alone["build_candidate"] = arm.build_seconds
        if described["derivable"]:
            bench.choose_drawing(study.run_ns / 1e9)

    def _measure(
        self,
        bench: Bench,
        facts: dict[str, Any],
        shared: Path,
        outcome: Outcome,
        shapes: int,
        recorder: Recorder,
    ) -> None:
        options, study, ledger = self.options, outcome.study, bench.ledger
        assert study is not None
        self.progress({"phase": "floor"})
        outcome.floor = physics.prepare(
            bench, study, self.store.root / "machine", self.cpus, self.context.machine
        )
        flushes, host_bound, paced = self._flushes(bench, study)
        free = bench.ask("free_memory")["bytes"]
        call_bytes = bench.spec["bytes"] + bench.output_bytes
        cand_ns = bench.arms[CANDIDATE].call_ns
        batch = plan_batch(study.run_ns, cand_ns, call_bytes, options.kind, flushes, free)
        spent = time.monotonic() - self.budget_from - bench.build_seconds
        left = options.budget * (len(self.outcomes) + 1) / shapes - spent
        pairs = options.pairs or (QUICK_PAIRS if options.quick else DEFAULT_PAIRS[options.kind])
        delta = options.delta if options.delta is not None else _DELTA[options.kind]
        plan = Plan(
            options.device,
            pairs,
            batch,
            flushes,
            delta,
            options.metric,
            max(4.0, 0.9 * left),
            host_bound,
            paced,
        )
        state_file = shared / "state.pt" if facts["format"] == "kernelbench" else None
        timeout = _call_timeout(study)
        # Alone means alone: a frozen candidate could have itself woken.
        bench.stop(CANDIDATE)
        with bench.fleet.awake(self._idle_prone_cpus()):
            alone = _alone(bench, plan)
            bench.stop(BASELINE)
            recorder.mark("pairs")
            clock = "cpu.mhz" if options.kind == "cpu" else "gpu.sm_mhz"
            measurement = outcome.measurement = measure(
                bench,
                plan,
                study,
                self.files,
                self.context.baseline.format,
                timeout,
                state_file,
                lambda event: self.progress({**event, "mhz": recorder.latest(clock)}),
            )
            bench.stop(CANDIDATE)
            alone_after = _alone(bench, plan)
        outcome.base_alone.update({"before_ns": alone, "after_ns": alone_after})
        ledger.passed(
            "worker-survives", f"{measurement.calls} timed calls answered, and those of audit and probes"
        )
        ledger.passed("protocol-intact", "only our own messages")
        ledger.passed(
            "output-matches-oracle",
            f"{study.checked} calls checked against the oracle, timed ones chosen after they ran; "
            f"{study.screened} of {measurement.calls} timed calls compared with the baseline's",
        )
        outcome.reading = read(measurement, ledger)
        self._judge_machine(outcome, plan, recorder)
        self._judge_other_arm(outcome, plan)
        self._judge_files(ledger)
        physics.judge(outcome.floor, measurement, ledger)
        ledger.settle()
        outcome.verdict, outcome.reasons = conclude(outcome.reading, delta, ledger)
        ledger.settle()

    def _idle_prone_cpus(self) -> list[int]:
        """The arms' CPUs where a hypervisor would take them away between slots."""
        guest = self.context.machine.virtualisation not in (None, "none")
        few = len(self.cpus) <= _MOST_AWAKE
        # On a CPU that the judge needs too, it would not give way: the judge is in another session.
        apart = not set(self.cpus) & set(self.judge_cpus)
        return self.cpus if guest and few and apart and self.options.kind == "cpu" else []

    def _flushes(self, bench: Bench, study: Study) -> tuple[int, bool, bool]:
        """How many flushes hide the host's part of a call in both arms, whether none would, whether to pace.

        Measures the baseline's time too.
        """
        if self.options.kind == "cpu":
            return 0, False, False
        arms: list[HostTime] = []
        tried = [_try_arms(bench, _TRIED_FLUSHES) for _ in range(_TRIALS)]
        # After the most flushes a host has had time to enqueue all it does: one that is not done then waits.
        waiting = _try_arms(bench, MAX_FLUSHES)
        for name in (BASELINE, CANDIDATE):
            slots = [slot[name] for slot in tried]
            arms.append(
                HostTime(
                    median(s.enqueued_ns / len(s.calls) for s in slots),
                    min(c.ns for s in slots for c in s.calls),
                    _not_ahead([waiting[name]]),
                )
            )
        study.run_ns = arms[0].run_ns
        flushes, host_bound = plan_flushes(arms)
        waits = any(arm.waits for arm in arms)
        while not waits and not host_bound:
            seen = [_try_arms(bench, flushes) for _ in range(_TRIALS)]
            if not any(_not_ahead([slot[name] for slot in seen]) for name in (BASELINE, CANDIDATE)):
                break
            flushes, host_bound = min(MAX_FLUSHES, math.ceil(1.5 * flushes)), flushes == MAX_FLUSHES
        return flushes, host_bound, waits or host_bound

    def _judge_machine(self, outcome: Outcome, plan: Plan, recorder: Recorder) -> None:
        """Whether anything else on the machine disturbed the measurement."""
        ledger, measurement = outcome.ledger, outcome.measurement
        assert measurement is not None
        quads = [q for p in measurement.pairs for q in p.quads]
        window = quads[0].began, quads[-1].ended
        kinds: list[Kind] = ["others"]
        if plan.kind == "cpu" or plan.metric == "wall":
            # A device's clock does not wait for CPUs. What keeps CPUs awake waits for them all the time.
            kinds += ["steal", "quota"] if self._idle_prone_cpus() else ["steal", "quota", "pressure"]
        noticed = recorder.disturbances(*window, self.cpus, kinds)
        slowed = recorder.disturbances(*window, self.cpus, ["slowdown"])
        stolen = recorder.stolen(*window, self.cpus) if plan.kind == "cpu" else 0.0
        if slowed:
            ledger.failed("machine-quiet", f"{'; '.join(slowed)}: run again when the GPU has cooled down")
        elif stolen > _MOST_STOLEN:
            ledger.failed(
                "machine-quiet",
                f"the hypervisor kept a CPU from the arms for {stolen:.0%} of the time, and "
                f"{_MOST_STOLEN:.0%} at most may be: run again on a quieter machine",
            )
        elif noticed:
            ledger.warned("machine-quiet", "; ".join(noticed))
        elif plan.kind == "cuda" and not recorder.watches_gpu:
            ledger.unknown(
                "machine-quiet",
                "the GPU could not be watched: see that nvidia-ml-py is installed and `nvidia-smi` works",
            )
        elif plan.kind == "cuda":
            ledger.passed("machine-quiet", "no throttling, no other process on the GPU")

    def _judge_files(self, ledger: Ledger) -> None:
        """Whether the files are still those that the record names: others may have been loaded since."""
        for facts in (self.context.baseline, self.context.candidate):
            for name, before in facts.files.items():
                try:
                    now = hashlib.sha256(Path(name).read_bytes()).hexdigest()
                except OSError:
                    now = ""
                if now != before:
                    ledger.failed(
                        "environment-same",
                        f"{name}, of the {facts.role}, changed during the comparison: run again without "
                        "touching it",
                    )

    def _judge_other_arm(self, outcome: Outcome, plan: Plan) -> None:
        """Whether the baseline is as fast beside the candidate as alone."""
        ledger, measurement = outcome.ledger, outcome.measurement
        assert measurement is not None
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
        if middle > _HINDERED[plan.kind] * alone:
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


def _call_timeout(study: Study) -> float:
    """Seconds that one call may take."""
    return max(_SHORTEST_TIMEOUT, _PATIENCE * study.run_ns / 1e9)


def _alone(bench: Bench, plan: Plan) -> float:
    """The baseline's time per call with the other arm gone: the middle of some, the first aside.

    Between calls it is frozen for as long as the other arm's slot would take, as it is beside the other arm.
    """
    arm = bench.arms[BASELINE]
    times: list[float] = []
    began = time.monotonic()
    while len(times) < _ALONE_CALLS or (
        time.monotonic() - began < _ALONE_SECONDS and len(times) < _MOST_ALONE_CALLS
    ):
        slot = bench.run(arm, bench.draw_timed(), [bench.seed()], flushes=max(1, plan.flushes))
        arm.process.freeze()
        bench.forget([slot])
        times.append(slot.calls[0].ns)
        time.sleep(min(0.1, plan.batch * slot.calls[0].ns / 1e9))
    return median(times[1:])


@contextmanager
def _pinned(cpus: Collection[int]) -> Iterator[None]:
    """Keep this thread on these CPUs meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """Let the first Ctrl-C through and no other, so that cleaning up is not cut short; SIGTERM is one."""
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


def _parent(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _try_arms(bench: Bench, flushes: int) -> dict[str, Slot]:
    """A few calls of each arm in turn, as timed ones are: a switch leaves its traces in caches."""
    slots: dict[str, Slot] = {}
    for name in (BASELINE, CANDIDATE):
        sets = bench.draw_many(AUDIT_SLOTS)
        slots[name] = bench.run(bench.arms[name], sets, [bench.seed() for _ in sets], flushes=flushes)
        bench.arms[name].process.freeze()
        bench.forget([slots[name]])
    return slots


def _not_ahead(slots: list[Slot]) -> bool:
    """Whether the device mostly waits for the host, or the host for it, from the second call of a slot on."""
    seen = [waited for slot in slots for waited in slot.waited[1:]]
    return 2 * sum(seen) > len(seen)
