"""A whole run: the program with the capture inside, the machine watched meanwhile, and what came of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trackside.machine.ceilings import kept_ceilings
from trackside.machine.facts import MachineFacts, facts, fingerprint, gpu_numbered
from trackside.machine.telemetry import Recorder, Telemetry
from trackside.profiling.captured import Captured, read_capture
from trackside.profiling.launch import Ended, launch
from trackside.profiling.program import Program
from trackside.profiling.record import RunFacts
from trackside.profiling.verdict import ending
from trackside.profiling.windows import Limits
from trackside.records.profile import ProgramEnd, Trust

__all__ = [
    "CAPTURE",
    "SAMPLES_A_SECOND",
    "Seen",
    "disturbances",
    "environment",
    "program_end",
    "run_program",
    "stored_ceilings",
]

CAPTURE = "trackside.profiling.capture:around"
SAMPLES_A_SECOND = 20
# Settings that change how fast a program is.
_VARIABLES = ("CUDA_", "CUBLAS_", "KMP_", "MKL_", "NCCL_", "OMP_", "PYTORCH_", "TORCH", "TRITON_")
_MOST_DISTURBANCES = 5


@dataclass(frozen=True)
class Seen:
    """A run that is over."""

    ended: Ended
    captured: Captured
    run: RunFacts


def run_program(
    program: Program,
    limits: Limits,
    folder: Path,
    *,
    root: Path,
    options: Mapping[str, Any],
    run_id: str | None = None,
    on_message: Callable[[dict[str, Any]], None] = lambda message: None,
    on_ended: Callable[[Ended], None] = lambda ended: None,
    stdout: int | None = None,
    seconds: float | None = None,
    rank_clock: Mapping[str, Any] | None = None,
) -> Seen:
    """Run a program to its end, and read what was captured.

    Args:
        folder: where the capture leaves its files.
        root: the store's, with what is kept of this machine.
        options: as the user gave them, for the record.
        on_message: gets what the capture says meanwhile.
        on_ended: called between the program's end and the analysis.
        stdout: the descriptor to use as the program's, in place of ours.
        seconds: after so many the program is ended.
        rank_clock: for one of several ranks, what its `RankClock` is made of.

    Raises:
        TracksideError: it cannot be started.
    """
    machine = facts()
    gpu = gpu_numbered(machine, 0) if machine.gpus else None
    recorder = Recorder(SAMPLES_A_SECOND, gpu_index=gpu)
    said = _Said(recorder, on_message)
    working = os.getcwd()
    started = datetime.now(UTC)
    began = time.monotonic()
    with recorder:
        ended = launch(
            program,
            CAPTURE,
            asdict(limits) | {"rank_clock": rank_clock},
            folder,
            on_message=said.hear,
            stdout=stdout,
            seconds=seconds,
        )
        telemetry = recorder.stop()
    on_ended(ended)
    captured = read_capture(folder, root / "compiled")
    end = program_end(ended)
    run = RunFacts(
        command=["python", *(["-m"] if program.module else []), program.target, *program.arguments],
        program=end,
        started=started.isoformat(timespec="seconds"),
        started_s=started.timestamp(),
        seconds=time.monotonic() - began,
        folder=working,
        torch=said.torch,
        run_id=run_id,
        environment=environment(machine, said.torch),
        telemetry=telemetry.to_record(),
        ceilings=stored_ceilings(machine, root),
        options={name: value for name, value in options.items() if value is not None},
        trust=[*_run_trust(ended, end, captured, said), *disturbances(telemetry, captured)],
    )
    return Seen(ended, captured, run)


class _Said:
    """What the capture has said, beside handing it on."""

    def __init__(self, recorder: Recorder, on_message: Callable[[dict[str, Any]], None]) -> None:
        self.torch: str | None = None
        """The version that the program imported."""
        self.trouble: str | None = None
        self._recorder, self._on_message = recorder, on_message

    def hear(self, message: dict[str, Any]) -> None:
        if message["kind"] == "torch":
            self.torch = message.get("version")
        elif message["kind"] == "trouble":
            self.trouble = message.get("text")
        elif message["kind"] == "window":
            self._recorder.mark(f"window {message.get('name')} over")
        self._on_message(message)


def program_end(ended: Ended) -> ProgramEnd:
    """How the program ended, as records say it."""
    name = None
    if ended.signal is not None:
        try:
            name = signal.Signals(ended.signal).name
        except ValueError:
            name = f"signal {ended.signal}"
    return ProgramEnd(exit_code=ended.exit_code, signal=name, seconds=ended.seconds)


def _run_trust(ended: Ended, end: ProgramEnd, captured: Captured, said: _Said) -> list[Trust]:
    found = []
    if not ended.begun:
        why = ended.trouble or "the interpreter did not load what begins it"
        found.append(Trust(what="the capture", effect=f"it did not begin, and the program ran alone: {why}"))
    elif ended.trouble:
        found.append(Trust(what="the capture", effect=ended.trouble))
    if ended.timed_out:
        found.append(Trust(what="the program", effect="it was ended because its time was over (--timeout)"))
    elif end.signal is not None or end.exit_code:
        found.append(Trust(what="the program", effect=f"it {ending(end)}; this is what was seen until then"))
    # What was written tells it too, unless that is gone.
    if said.trouble is not None and not any(said.trouble in one.effect for one in captured.missing):
        found.append(Trust(what="the capture", effect=f"it ended early: {said.trouble}"))
    if ended.begun and said.torch is None:
        found.append(
            Trust(
                what="torch",
                effect="the program did not import it, so there were no operators to see",
                # Who failed before that import has nothing to be profiled yet.
                remedy="profile plain Python with a profiler for it, such as `python -m cProfile`"
                if end.exit_code == 0
                else None,
            )
        )
    if ended.begun and not ended.finished and captured.traced is None and said.torch is not None:
        found.append(
            Trust(
                what="the trace",
                effect="the program ended without a moment for us (a signal, os._exit or exec): what had not "
                "been written is lost",
                remedy="have it end later, or by itself",
            )
        )
    elif said.torch is not None and not captured.written:
        effect = "they are gone: something deleted them while the program ran"
        found.append(Trust(what="the capture's files", effect=effect, remedy="set TRACKSIDE_HOME elsewhere"))
    return found


def disturbances(telemetry: Telemetry, captured: Captured) -> list[Trust]:
    """What else happened on the machine in the untraced window."""
    if captured.timed_ns is None:
        return []
    # The two clocks are one on Linux: CLOCK_MONOTONIC.
    found = telemetry.disturbances(*captured.timed_ns)
    return [
        Trust(what="the machine was disturbed in the untraced window", effect=text)
        for text in found[:_MOST_DISTURBANCES]
    ]


def environment(machine: MachineFacts, torch: str | None) -> dict[str, Any]:
    """What decides how fast a program is here."""
    software = asdict(machine.software) | {"torch": torch or machine.software.torch}
    return {
        "fingerprint": fingerprint(machine),
        "cpu": {
            "model": machine.cpu.model,
            "cores": machine.cpu.cores,
            "threads": machine.cpu.threads,
            "allowed": len(machine.cpu.allowed),
        },
        "memory_bytes": machine.memory.total_bytes,
        "gpus": [gpu.name for gpu in machine.gpus],
        "software": {name: version for name, version in software.items() if version is not None},
        "kernel": machine.kernel,
        "virtualisation": machine.virtualisation,
        "container": machine.container,
        "variables": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)
        },
    }


def stored_ceilings(machine: MachineFacts, root: Path) -> dict[str, float]:
    """What `trackside ceilings` measured here before; nothing where it has not."""
    places = ["cpu", *(["cuda:0"] if machine.gpus else [])]
    rows = {
        name: row for place in places for name, row in kept_ceilings(place, root / "machine", machine).items()
    }
    return {name: float(row["value"]) for name, row in rows.items()}
