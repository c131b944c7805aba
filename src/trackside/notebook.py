"""`with trackside.profile():` around a part of a program or a cell of a notebook."""

from __future__ import annotations

import html
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from trackside.diagnose.examine import examine
from trackside.machine.facts import facts, gpu_numbered
from trackside.machine.telemetry import Recorder
from trackside.profiling.capture import Capture, is_users
from trackside.profiling.captured import read_capture
from trackside.profiling.devices import take_devices
from trackside.profiling.inside import Setting
from trackside.profiling.on_import import when_imported
from trackside.profiling.ranks import rank_here
from trackside.profiling.record import RunFacts, build_record
from trackside.profiling.session import SAMPLES_A_SECOND, disturbances, environment, stored_ceilings
from trackside.profiling.windows import Limits
from trackside.records.errors import TracksideError, printable
from trackside.records.profile import ProgramEnd, Trust
from trackside.report.profile_run import keep_profile
from trackside.store.lock_holders import holder_named
from trackside.store.runs import RunStore

if TYPE_CHECKING:
    from trackside.records.profile import ProfileRecord

__all__ = ["Block"]

_log = logging.getLogger("trackside")

# A comparison takes a minute, and a bit; a collective that waits for this process gives up after ten.
_PATIENCE_S = 120.0


class Block:
    """Watches what runs between its beginning and its end, as `trackside profile` watches a program.

    A block of many steps has them untraced, traced and line by line, one after the other. Of one that is over
    before, its first steps are traced, with their lines; one without steps is traced as a whole.

    It waits for others that measure on its devices, and keeps them off until it is over; but it is part of a
    program, which may have processes that wait for this one. So after two minutes it begins all the same, and
    the record says with whom.

    Attributes:
        record: once the block is over, where its time went.
        folder: where that is kept, with the report.
    """

    def __init__(self, limits: Limits, store: Path | None) -> None:
        self._limits, self._store = limits, RunStore(store)
        self._heard = _Heard()
        self.record: ProfileRecord | None = None
        self.folder: Path | None = None

    def __enter__(self) -> Self:
        self._machine = facts()
        with ExitStack() as devices:
            self._beside = _take_devices(devices)
            self._begin()
            self._devices = devices.pop_all()
        return self

    def _begin(self) -> None:
        self._run = self._store.new_run("profile")
        place = self._run.folder / "capture"
        place.mkdir()
        asked = asdict(self._limits) | {"from_start": True}
        self._capture = Capture(Setting(asked, str(place), self._heard))  # type: ignore[arg-type]
        gpu = gpu_numbered(self._machine, 0) if self._machine.gpus else None
        self._recorder = Recorder(SAMPLES_A_SECOND, gpu_index=gpu)
        self._recorder.start()
        self._started, self._began = datetime.now(UTC), time.monotonic()
        self._forget = when_imported("torch", self._capture.begin)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._devices:
            self._end(kind)

    def _end(self, kind: type[BaseException] | None) -> None:
        self._capture.finish()
        # A program that imports torch later does so without us.
        self._forget()
        seconds = time.monotonic() - self._began
        telemetry = self._recorder.stop()
        captured = read_capture(self._run.folder / "capture", self._store.root / "compiled")
        run = RunFacts(
            command=["python", *_command()],
            program=ProgramEnd(exit_code=0 if kind is None else 1, signal=None, seconds=seconds),
            started=self._started.isoformat(timespec="seconds"),
            started_s=self._started.timestamp(),
            seconds=time.monotonic() - self._began,
            folder=os.getcwd(),
            torch=self._heard.torch,
            run_id=self._run.id,
            environment=environment(self._machine, self._heard.torch),
            telemetry=telemetry.to_record(),
            ceilings=stored_ceilings(self._machine, self._store.root),
            options={name: value for name, value in asdict(self._limits).items() if value is not None},
            trust=[*self._beside, *disturbances(telemetry, captured)],
        )
        found = examine(captured, run)
        self.record = build_record(
            captured,
            replace(run, trust=[*run.trust, *found.failed]),
            found.findings,
            found.together,
        )
        # The rules have timed their fixes.
        self._devices.close()
        keep_profile(self.record.to_dict(), self._store, self._run, captured)
        self.folder = self._run.folder

    def __str__(self) -> str:
        if self.record is None:
            return "a profile that is not over"
        from rich.console import Console

        from trackside.report.profile_text import render

        text = StringIO()
        render(self.record.to_dict(), Console(file=text, width=100))
        return text.getvalue()

    def _repr_html_(self) -> str:
        """The report in a notebook, in a frame of its own."""
        if self.folder is None:
            return html.escape(str(self))
        page = html.escape((self.folder / "report.html").read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 50em; border: 0"></iframe>'


def _take_devices(stack: ExitStack) -> list[Trust]:
    """Keeps others off the devices, as `trackside profile` does; what the record must say where it cannot."""
    rank = rank_here(os.environ)
    if rank is not None and not rank.speaks_for_machine:
        # The first one here has them for all: they would wait for each other.
        return []
    try:
        take_devices(stack, _say_waiting, wait=_PATIENCE_S)
    except TracksideError as error:
        effect = f"it was measured all the same: {error.message}"
        return [Trust(what="others may have measured at the same time", effect=effect, remedy=error.remedy)]
    return []


def _say_waiting(holder: Mapping[str, Any]) -> None:
    # By way of logging, which puts it on stderr unless the program has other wishes.
    _log.warning("waiting: %s measures on this device", printable(holder_named(holder)))


def _command() -> list[str]:
    """What stood behind `python` when the program around the block was started.

    Nothing where there is none to start again: a notebook's cells, a prompt and `-c` are in no file, and
    what a tool runs (pytest) is not the tool's.
    """
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or not is_users()(file):
        return []
    if main.__spec__ is not None:
        return ["-m", main.__spec__.name.removesuffix(".__main__"), *sys.argv[1:]]
    return list(sys.argv)


class _Heard:
    """What the capture says, and to whom nobody listens but for torch's version."""

    def __init__(self) -> None:
        self.torch: str | None = None
        self._lock = threading.Lock()

    def send(self, kind: str, **values: str | float | bool | None) -> bool:
        with self._lock:
            if kind == "torch":
                self.torch = str(values.get("version"))
        return True
