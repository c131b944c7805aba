"""Two command lines compared: wall time of whole processes in randomised quads, and what they leave."""

from __future__ import annotations

import contextlib
import math
import random
import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

import trackside
from trackside.comparison.arms import BASELINE, CANDIDATE
from trackside.comparison.certificate import seal
from trackside.comparison.checks import Ledger, Stop
from trackside.comparison.command_host import Host
from trackside.comparison.command_identity import identify, parse_command
from trackside.comparison.command_outputs import compare as compare_outputs
from trackside.comparison.command_reading import read_commands
from trackside.comparison.command_record import environment, measured_fields
from trackside.comparison.command_runs import SEED, Runner, Shot
from trackside.comparison.measure import Measurement, Pair, Plan, Quad
from trackside.comparison.options import CERTIFIED_PAIRS, QUICK_PAIRS, check_common
from trackside.comparison.verdict import Reading, conclude
from trackside.machine.facts import facts as machine_facts
from trackside.machine.telemetry import Recorder
from trackside.records.compare import CompareRecord
from trackside.records.errors import TracksideError
from trackside.stats.intervals import RunningSignSequence
from trackside.stats.spread import quads_for_half_width, robust_sigma
from trackside.store.files import store_errors
from trackside.store.lock import DeviceLock
from trackside.store.runs import RunStore

__all__ = ["SEED", "CommandOptions", "run_commands"]

Progress = Callable[[dict[str, Any]], None]

_BLOCKS = 6
_DELTA = 0.02
_FIRST_QUADS, _MAX_QUADS = 4, 40
_SEED_BELOW = 2**31
# Numbers that differ by more are not the same work in other arithmetic.
_WIDE_RTOL = 1e-3

_NOT_FOR_COMMANDS: Final = (
    *("protocol-intact", "harness-intact", "output-structure", "aliasing", "inputs-unchanged"),
    *("state-matches", "late-writes", "output-reuse", "holds-on-probes", "above-floor", "parameters-match"),
)


@dataclass(frozen=True)
class CommandOptions:
    """What `compare --command` was asked."""

    baseline: str
    candidate: str
    outputs: tuple[str, ...] = ()
    claim: str = "faster"
    budget: float = 60.0
    delta: float | None = None
    quick: bool = False
    pairs: int | None = None
    seed: int | None = None
    timeout: float = 300.0
    """Seconds for the first run of each command."""
    rtol: float = 1e-6
    """How far apart two printed or saved numbers may be and still count as equal."""
    folder: Path | None = None
    """Where both run; by default the working directory."""
    wait: bool = True
    store: Path | None = None

    def check(self) -> None:
        """See that every value is one that a comparison can work with.

        Raises:
            TracksideError: kind `usage`, for the first that is not.
        """
        if not 0 <= self.rtol < 1:
            raise TracksideError("usage", f"found --rtol {self.rtol}", "needed: a fraction such as 1e-6")
        check_common(self.claim, self.budget, self.delta, self.pairs, self.timeout)

    def to_record(self) -> dict[str, Any]:
        return asdict(self) | {
            "command": True,
            "outputs": list(self.outputs),
            "folder": str(self.folder),
            "store": str(self.store) if self.store else None,
        }


def run_commands(options: CommandOptions, progress: Progress = lambda event: None) -> CompareRecord:
    """Compare and leave a record, also when the run fails or is interrupted.

    Raises:
        TracksideError: wrong use, or a baseline that fails. A record is written for the latter too.
    """
    folder = (options.folder or Path.cwd()).resolve()
    options = replace(options, folder=folder)
    argvs = {
        BASELINE: parse_command(options.baseline, "baseline", folder),
        CANDIDATE: parse_command(options.candidate, "candidate", folder),
    }
    if len({any(SEED in token for token in argv) for argv in argvs.values()}) > 1:
        raise TracksideError(
            "usage",
            f"found {SEED} in one command only, needed in both or in neither",
            "give the seed to both, so that both work on the same input",
        )
    for name in options.outputs:
        if SEED in name or (folder / name).is_dir():
            raise TracksideError(
                "usage",
                f"found --output {name}, needed one file that both commands write",
                "name the file itself, without a seed in its name",
            )
    return _CommandTrial(options, argvs, progress).run()


@dataclass
class _Checked:
    """What the output checks saw, per name."""

    pairs: int = 0
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    digests: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Seed -> the baseline's outputs: whether the seed makes a difference at all."""


class _CommandTrial:
    def __init__(self, options: CommandOptions, argvs: dict[str, list[str]], progress: Progress) -> None:
        assert options.folder is not None
        self.options, self.argvs, self.progress = options, argvs, progress
        self.folder = options.folder
        self.seeded = any(SEED in token for token in argvs[BASELINE])
        self.identities = {
            BASELINE: identify(options.baseline, BASELINE, self.folder, options.outputs),
            CANDIDATE: identify(options.candidate, CANDIDATE, self.folder, options.outputs),
        }
        self.store = RunStore(options.store)
        self.run_ = self.store.new_run("compare")
        self.began = self.ready = time.monotonic()
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self.rng = random.Random(options.seed if options.seed is not None else secrets.randbits(128))
        self.machine = machine_facts()
        self.ledger = Ledger()
        self.checked = _Checked()
        self.measurement: Measurement | None = None
        self.reading: Reading | None = None
        self.telemetry: dict[str, Any] = {}
        self.verdict = "inconclusive"
        self.reasons: list[str] = []
        self.delta = options.delta if options.delta is not None else _DELTA

    # -- the frame around everything ---------------------------------------------------------------------

    def run(self) -> CompareRecord:
        failure: BaseException | None = None
        with ExitStack() as stack:
            try:
                self._with_host(stack)
            except Stop as stop:
                self.verdict, self.reasons = stop.outcome, [f"{stop.check}: {stop.detail}"]
            except BaseException as caught:
                failure = caught
        if failure is not None:
            reason = f"internal: {type(failure).__name__}: {failure}"
            if isinstance(failure, TracksideError):
                reason = f"{failure.kind}: {failure.message}"
            elif isinstance(failure, KeyboardInterrupt):
                reason = "interrupted before the verdict"
            # The host may have been first, if it lost sight of us; what went wrong is told all the same.
            with contextlib.suppress(TracksideError):
                self.store.write_record(self.run_, self._failed(reason).to_dict())
            raise failure
        record = self._record()
        if self.measurement is not None:
            quads = [[quad.to_record() for quad in pair.quads] for pair in self.measurement.pairs]
            with store_errors(self.run_.folder, "write raw quads to"):
                (self.run_.folder / "quads.json").write_bytes(orjson.dumps(quads))
        self.store.write_record(self.run_, record.to_dict())
        return record

    def _with_host(self, stack: ExitStack) -> None:
        # Resolved: some programs compare TMPDIR with the real path of what they opened in it.
        scratch = Path(tempfile.mkdtemp(prefix="trackside-")).resolve()
        self.host = stack.enter_context(Host(scratch))
        self.runner = Runner(
            self.host, self.argvs, self.folder, scratch, self.options.outputs, self.options.timeout
        )
        stack.callback(self.runner.forget)
        self.host.promise(self.run_, self._failed("the judge ended before the verdict").to_dict())
        self.progress({"phase": "start", "run_id": self.run_.id})
        lock = DeviceLock(
            "cpu",
            wait=self.options.wait,
            verb="compare",
            on_wait=lambda holder: self.progress({"phase": "waiting", "holder": holder}),
        )
        stack.enter_context(lock)
        self.ready = time.monotonic()
        # Before the lock is given back, nothing of ours may run.
        stack.callback(self.host.close)
        recorder = Recorder()
        recorder.start()
        stack.callback(lambda: self._keep_telemetry(recorder))
        self.host.set_aside([self.folder / name for name in self.options.outputs])
        for id in _NOT_FOR_COMMANDS:
            self.ledger.not_applicable(id, "commands are judged by exit code, output and wall time alone")
        self.ledger.not_applicable("baseline-undisturbed", "the two never run at the same time")
        self.ledger.warned(
            "isolation",
            "commands run with your rights: nothing keeps one from the other's files or from the judge",
        )
        self._study()
        self._measure(recorder)
        self._conclude(recorder)

    def _keep_telemetry(self, recorder: Recorder) -> None:
        telemetry = recorder.stop()
        self.telemetry = record = telemetry.to_record()
        path = self.run_.folder / "telemetry.npz"
        try:
            telemetry.save(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            record["unknown"].append({"what": "raw telemetry", "why": f"not kept: {error.strerror}"})

    # -- one run -----------------------------------------------------------------------------------------

    def _shoot(self, arm: str, seed: int, block: int) -> Shot:
        """Run one arm once; failing ends the trial, for the baseline as an error, else as a verdict."""
        shot = self.runner.run(arm, seed, block)
        if shot.ended.left:
            names = ", ".join(shot.ended.left[:3])
            self.ledger.failed(
                "no-leftovers", f"the {arm} ended and left {names} running; a second later it was killed"
            )
            self.ledger.settle()
        if shot.problem is None:
            return shot
        if arm == BASELINE:
            raise _baseline_failed(shot)
        # A seed on which the baseline fails too says nothing about the candidate.
        again = self.runner.run(BASELINE, seed, block)
        if again.problem is not None:
            raise _baseline_failed(again)
        given = f" (seed {seed})" if self.seeded else ""
        self.ledger.failed("worker-survives", f"the candidate {shot.problem}{given}")
        raise AssertionError("a rejection always stops the trial")

    # -- outputs -----------------------------------------------------------------------------------------

    def _check(self, base: Shot, cand: Shot, seed: int) -> None:
        """Hold the candidate's outputs against the baseline's for one seed."""
        for name, expected in base.outputs.items():
            if expected is None:
                raise TracksideError(
                    "workload",
                    f"the baseline did not write {name}",
                    "name with --output a file that both commands write, relative to the working directory",
                )
            found = cand.outputs[name]
            if found is None:
                self._mismatch(name, f"expected a file of {expected.size} bytes, found none", base, seed)
                return
            difference = compare_outputs(expected, found, self.options.rtol)
            if difference.where is not None:
                self._mismatch(name, difference.where, base, seed)
            row = self.checked.rows.setdefault(
                name, {"path": name, "bytes": 0, "identical": True, "largest_relative_difference": 0.0}
            )
            row["bytes"] = max(row["bytes"], expected.size)
            row["identical"] = row["identical"] and expected.sha256 == found.sha256
            row["largest_relative_difference"] = max(row["largest_relative_difference"], difference.relative)
        self.checked.digests[seed] = tuple(o.sha256 for o in base.outputs.values() if o is not None)
        self.checked.pairs += 1

    def _mismatch(self, name: str, where: str, base: Shot, seed: int) -> None:
        """A difference counts against the candidate only if the baseline does not differ from itself too."""
        again = self._shoot(BASELINE, seed, 0)
        self._repeats(base, again)
        given = f" (seed {seed})" if self.seeded else ""
        self.ledger.failed("output-matches-oracle", f"{name}, {where}{given}", file=name)

    def _repeats(self, first: Shot, second: Shot) -> None:
        for name, expected in first.outputs.items():
            found = second.outputs[name]
            if expected is None or found is None:
                continue
            where = compare_outputs(expected, found, self.options.rtol).where
            if where is not None:
                hint = "print times and paths to stderr"
                if not self.seeded:
                    hint = f"use {SEED} for its random numbers, and {hint}"
                self.ledger.failed(
                    "baseline-right",
                    f"the baseline does not repeat itself on one input: {name}, {where}; {hint}",
                )
        self.ledger.settle()

    @property
    def _anything_checked(self) -> bool:
        return any(row["bytes"] for row in self.checked.rows.values())

    # -- the course of a trial -----------------------------------------------------------------------------

    def _study(self) -> None:
        """Both on one input, the baseline twice: do they work, repeat, agree, and how long does that take?"""
        seed = self._seed()
        self.progress({"phase": "repeat"})
        first, second = (self._shoot(BASELINE, seed, 0) for _ in range(2))
        self._repeats(first, second)
        # The first run filled the file cache for both.
        self.runner.first_ns[BASELINE] = second.ended.ns
        self.ledger.passed("baseline-right", "it repeats its output on one input")
        self.progress({"phase": "candidate"})
        cand = self._shoot(CANDIDATE, seed, 0)
        self._check(second, cand, seed)
        self.runner.forget()
        if self._anything_checked:
            self.ledger.passed("oracle-available", "the baseline's own output for the same input")
        else:
            self.ledger.unknown(
                "oracle-available", "neither command prints anything, and no --output was named"
            )

    def _plan(self) -> tuple[Plan, int]:
        """Blocks of quads that fit the budget; and how many quads a block may have at most."""
        options = self.options
        left = options.budget - (time.monotonic() - self.ready)
        base, cand = (self.runner.first_ns[arm] / 1e9 for arm in (BASELINE, CANDIDATE))
        quad = 2 * (base + cand)
        fitting = int(left / quad)
        wanted = options.pairs or (QUICK_PAIRS if options.quick else _BLOCKS)
        pairs = min(wanted, fitting)
        if pairs < 2:
            needed = math.ceil((options.budget - left + wanted * quad) * 1.2)
            raise TracksideError(
                "usage",
                f"found a budget of {options.budget:.0f} s, of which {max(0.0, left):.0f} s are left, "
                f"and runs of {base:.1f} s and {cand:.1f} s",
                f"needed for {wanted} blocks of ABBA: --budget {needed}",
            )
        plan = Plan("cpu", pairs, 1, 0, self.delta, "wall", left, host_bound=False)
        return plan, min(_MAX_QUADS, fitting // pairs)

    def _measure(self, recorder: Recorder) -> None:
        plan, most = self._plan()
        measurement = self.measurement = Measurement(plan)
        running = RunningSignSequence()
        recorder.mark("pairs")
        began = time.monotonic()
        wanted = min(most, _FIRST_QUADS)
        for index in range(plan.pairs):
            pair = Pair(index)
            measurement.pairs.append(pair)
            share = began + plan.seconds * (index + 1) / plan.pairs
            while len(pair.quads) < wanted and (not pair.quads or time.monotonic() < share):
                pair.quads.append(self._quad(index + 1, pair))
                low, high = running.add(pair.quads[-1].log_ratio)
                self.progress(
                    {
                        "phase": "quads",
                        "pair": index + 1,
                        "pairs": plan.pairs,
                        "quads": running.n,
                        "low": math.exp(low) if math.isfinite(low) else None,
                        "high": math.exp(high) if math.isfinite(high) else None,
                    }
                )
            if index == 0 and len(pair.quads) > 2:
                # Label-blind: the spread does not know which arm is the faster.
                sigma = robust_sigma([quad.log_ratio for quad in pair.quads])
                need = quads_for_half_width(sigma, plan.delta / 2, plan.pairs)
                wanted = min(most, max(_FIRST_QUADS, need))

    def _quad(self, block: int, pair: Pair) -> Quad:
        """ABBA or BAAB over two seeds: each arm meets a seed once, and is the first to meet it once."""
        assert self.measurement is not None
        order = "ABBA" if self.rng.random() < 0.5 else "BAAB"
        seeds = (self._seed(), self._seed())
        shots: dict[str, list[Shot]] = {BASELINE: [], CANDIDATE: []}
        quad = Quad(order, "plain", [], [], [], [], [], 0, 0)
        for letter in order:
            arm = BASELINE if letter == "A" else CANDIDATE
            shot = self._shoot(arm, seeds[len(shots[arm])], block)
            shots[arm].append(shot)
            ended = shot.ended
            for series in (quad.ns, quad.totals, quad.judge_ns, quad.host):
                series.append(float(ended.ns))
            quad.cpu.append(float(max(1, ended.cpu_ns)))
            samples = self.measurement.samples
            samples.setdefault((arm, "wall"), []).append(float(ended.ns))
            samples.setdefault((arm, "cpu"), []).append(float(max(1, ended.cpu_ns)))
            peak = pair.peaks.setdefault(arm, {"host": 0, "device": None})
            peak["host"] = max(peak["host"] or 0, ended.peak_bytes)
            self.measurement.calls += arm == CANDIDATE
        quad.began = min(s.began for arm in shots.values() for s in arm)
        quad.ended = max(s.finished for arm in shots.values() for s in arm)
        for seed, base, cand in zip(seeds, shots[BASELINE], shots[CANDIDATE], strict=True):
            self._check(base, cand, seed)
        self.runner.forget()
        return quad

    def _seed(self) -> int:
        return self.rng.randrange(_SEED_BELOW)

    # -- the verdict ---------------------------------------------------------------------------------------

    def _conclude(self, recorder: Recorder) -> None:
        ledger, measurement = self.ledger, self.measurement
        assert measurement is not None
        runs = sum(len(pair.quads) for pair in measurement.pairs) * 2
        ledger.passed("worker-survives", f"{runs + 1} runs of the candidate ended with exit code 0")
        ledger.passed("no-leftovers", "every process of every run had ended")
        self._judge_files()
        self._judge_outputs()
        self.reading = read_commands(measurement.pairs, self.delta, ledger)
        quads = [quad for pair in measurement.pairs for quad in pair.quads]
        noticed = recorder.disturbances(quads[0].began, quads[-1].ended)
        if noticed:
            ledger.warned("machine-quiet", "; ".join(noticed))
        ledger.settle()
        self.verdict, self.reasons = conclude(self.reading, self.delta, ledger)
        if self.verdict == "faster":
            ledger.passed("clocks-agree", "the only clock is the judge's own")
        ledger.settle()
        self.reasons += self._reservations()

    def _judge_files(self) -> None:
        for arm, command in ((BASELINE, self.options.baseline), (CANDIDATE, self.options.candidate)):
            before, now = (
                self.identities[arm]["files"],
                identify(command, arm, self.folder, self.options.outputs)["files"],
            )
            changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
            if changed:
                self.ledger.failed(
                    "environment-same",
                    f"{changed[0]}, named by the {arm}, changed during the comparison; "
                    f"if the command writes it, name it with --output",
                )
        self.ledger.passed(
            "environment-same",
            "same working directory, variables and processors; the number of threads is the commands' own",
        )

    def _judge_outputs(self) -> None:
        ledger, checked = self.ledger, self.checked
        if not self._anything_checked:
            ledger.unknown("output-matches-oracle", "there was no output to compare")
            ledger.unknown("task-is-sensitive", "there was no output to compare")
            return
        close = max(row["largest_relative_difference"] for row in checked.rows.values())
        how = (
            "byte for byte"
            if all(row["identical"] for row in checked.rows.values())
            else (f"numbers to {close:.1e}" if close else "number by number")
        )
        names = ", ".join(name for name, row in checked.rows.items() if row["bytes"])
        ledger.passed("output-matches-oracle", f"{names}: {checked.pairs} of {checked.pairs} agree, {how}")
        if not self.seeded:
            ledger.warned(
                "task-is-sensitive",
                f"without {SEED} in the commands every run has one answer: a stored one cannot be told apart",
            )
        elif len(set(checked.digests.values())) == 1:
            ledger.warned(
                "task-is-sensitive",
                f"all {len(checked.digests)} seeds give one output: a stored answer cannot be told apart",
            )
        else:
            different = len(set(checked.digests.values()))
            ledger.passed(
                "task-is-sensitive", f"{different} different answers to {len(checked.digests)} secret seeds"
            )

    def _reservations(self) -> list[str]:
        """Why the certificate is not full, in the words of the result."""
        if self.verdict not in ("faster", "slower", "equivalent"):
            return []
        assert self.measurement is not None
        if not self._anything_checked:
            return [
                "not certified: neither command printed anything and no --output was named, "
                "so nothing shows that both do the same work"
            ]
        if self.options.quick:
            return ["not certified: --quick is a first look"]
        pairs = len(self.measurement.pairs)
        if pairs < CERTIFIED_PAIRS:
            return [f"not certified: {pairs} blocks of quads, and a certificate needs {CERTIFIED_PAIRS}"]
        found = []
        sensitive = self.ledger.results["task-is-sensitive"]
        if sensitive.status != "pass":
            found.append(f"reservation: {sensitive.detail}")
        if self.options.seed is not None:
            found.append("reservation: --seed makes the inputs foreseeable")
        if self.options.rtol > _WIDE_RTOL:
            found.append(f"reservation: --rtol lets numbers differ by {self.options.rtol:g} of their size")
        return [*found, f"reservation: {self.ledger.results['isolation'].detail}"]

    def _certificate(self) -> str:
        # Never full: what a full certificate rests on, a candidate that is confined, commands cannot have.
        reservations = self._reservations()
        if not reservations or any(reason.startswith("not certified") for reason in reservations):
            return "none"
        return "reduced"

    # -- the record ----------------------------------------------------------------------------------------

    def _failed(self, reason: str) -> CompareRecord:
        self.verdict, self.reasons = "inconclusive", [reason]
        return self._record("failed")

    def _record(self, status: str = "done") -> CompareRecord:
        options, verdict = self.options, self.verdict
        certificate = self._certificate() if status == "done" else "none"
        return seal(
            CompareRecord.model_validate(
                {
                    "run_id": self.run_.id,
                    "status": status,
                    "verdict": verdict,
                    "certified": certificate != "none",
                    "certificate": certificate,
                    "claim": options.claim,
                    "holds": status == "done"
                    and (verdict == "faster" or (options.claim == "not-slower" and verdict == "equivalent")),
                    **measured_fields(self.measurement, self.reading, self.delta),
                    "checks": self.ledger.to_records(),
                    "reasons": self.reasons,
                    "accuracy": {
                        "oracle": "the baseline's output",
                        "checked_calls": self.checked.pairs,
                        "probes": {},
                        "outputs": [],
                        "files": list(self.checked.rows.values()),
                    },
                    "baseline": self.identities[BASELINE],
                    "candidate": self.identities[CANDIDATE],
                    "environment": environment(self.machine, self.folder),
                    "telemetry": self.telemetry,
                    "options": options.to_record(),
                    "started": self.started,
                    "seconds": time.monotonic() - self.began,
                    "version": trackside.__version__,
                }
            )
        )


def _baseline_failed(shot: Shot) -> TracksideError:
    if shot.ended.timed_out:
        return TracksideError(
            "timeout", f"the baseline {shot.problem}", "give it more time with --build-timeout"
        )
    return TracksideError(
        "workload", f"the baseline {shot.problem}", "make the baseline run on its own first"
    )
