"""Ranks of one program under torchrun: which one this is, and the folder where all leave what they saw.

Ranks know nothing of each other but what torchrun tells all of them. From that each derives the same folder
in the store, registers there before its program begins, and leaves its part there at the end; the first rank
gathers them. A rank that was killed leaves what its capture had written until then.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trackside.records.errors import TracksideError
from trackside.store.files import read_json, store_errors, write_json
from trackside.store.runs import RunStore, process_mark

__all__ = ["Awaited", "Meeting", "Rank", "rank_here", "ranks_named"]

# What a rank's folder in the meeting place has in it.
_HERE, _BEGUN, _PART, _CAPTURE = "here.json", "begun", "part.json", "capture"
# Ranks start within seconds of each other, also on several machines: what registered so long before the first
# rank did is of an earlier run of the same name.
_SAME_START_S = 120.0
# A rank that has not registered so long after the first one did is not coming, or not to this folder.
_REGISTERS_S = 10.0
_TICK_S = 0.1
# So long nobody has to be told that there is something to wait for.
_SILENT_S = 1.0


@dataclass(frozen=True)
class Rank:
    """One of the processes that torchrun started."""

    number: int
    world: int
    """How many there are in all."""
    local_world: int
    """How many on this machine."""
    key: str
    """The same on all of them, and of no other run."""

    @property
    def speaks_for_machine(self) -> bool:
        """Of what concerns a whole machine, one of its ranks tells."""
        return self.number % self.local_world == 0


def rank_here(environment: Mapping[str, str]) -> Rank | None:
    """The rank that this process is; None where torchrun started none, or only one."""
    try:
        number, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        local_world = int(environment.get("LOCAL_WORLD_SIZE", world))
        run = [environment[name] for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")]
    except (KeyError, ValueError):
        return None
    if not 0 <= number < world or not 1 <= local_world <= world or world < 2:
        return None
    known = [*run, environment.get("TORCHELASTIC_RESTART_COUNT", "0"), str(world)]
    if local_world == world:
        # Names of runs repeat, and machines that share a folder may all call themselves localhost. torchrun
        # makes a temporary folder for each attempt, in which each of its ranks has one.
        own = os.path.dirname(environment.get("TORCHELASTIC_ERROR_FILE", ""))
        known += [socket.gethostname(), os.path.dirname(own)]
    return Rank(number, world, local_world, hashlib.sha256(os.fsencode("\n".join(known))).hexdigest()[:16])


@dataclass(frozen=True)
class Awaited:
    """What was to be had of another rank."""

    rank: int
    came: bool
    """Whether it registered here."""
    part: dict[str, Any] | None = None
    """What it left at its end."""
    capture: Path | None = None
    """Where it left none: what its capture may have written."""
    host: str = ""
    alive: bool = False
    """Whether it was still running when nobody waited any longer."""


class Meeting:
    """The folder of one run's ranks, as one of them sees it."""

    def __init__(self, root: Path, rank: Rank, clock: Callable[[], float] = time.monotonic) -> None:
        self.rank = rank
        self._all = root / "ranks"
        self._folder = self._all / rank.key
        self._own = self._of(rank.number)
        self._clock = clock
        self._joined = clock()

    def join(self, store: RunStore) -> Path:
        """Register this rank; returns where its capture goes.

        Raises:
            TracksideError: kind `store`, when the folder cannot be made.
        """
        with store_errors(self._own, "register in"):
            store.create_root()
            if self.rank.number == 0:
                self._sweep()
            shutil.rmtree(self._own, ignore_errors=True)
            capture = self._own / _CAPTURE
            capture.mkdir(parents=True)
            self._arrivals.mkdir(exist_ok=True)
            self._joined = self._clock()
            here = {"pid": os.getpid(), "process": process_mark(os.getpid())}
            write_json(self._own / _HERE, here | {"host": socket.gethostname(), "started_s": time.time()})
        return capture

    def begin(self) -> None:
        """The first rank has the devices: its program begins, and the others' may."""
        with store_errors(self._own, "register in"):
            (self._own / _BEGUN).touch()

    def await_first(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait until the first rank begins, which waits for others that measure here.

        A program that began before would disturb those, and could give up in a collective. Where the first
        rank is on another machine, or does not come, it is not waited for.
        """
        if self.rank.number >= self.rank.local_world:
            return
        while True:
            is_here = _is_alive(self._here(0))
            if is_here and (self._of(0) / _BEGUN).exists():
                return
            if not is_here and self._clock() - self._joined >= _REGISTERS_S:
                return
            sleep(_TICK_S)

    @property
    def rank_clock(self) -> dict[str, Any]:
        """What this rank's `RankClock` is made of."""
        return {
            "folder": str(self._arrivals),
            "rank": self.rank.number,
            "count": self.rank.local_world,
        }

    def leave(self, part: Mapping[str, Any]) -> bool:
        """Leave what this rank saw, for the first to take. Where that one is not here, nothing stays.

        Returns:
            Whether the first may still take it.

        Raises:
            TracksideError: kind `store`, when it cannot be written.
        """
        with store_errors(self._own, "leave what was seen in"):
            self._own.mkdir(parents=True, exist_ok=True)
            write_json(self._own / _PART, part)
        if (self._of(0) / _HERE).exists():
            return True
        shutil.rmtree(self._own, ignore_errors=True)
        if not any(self._folder.glob("rank-*")):
            shutil.rmtree(self._folder, ignore_errors=True)
        return False

    def gather(
        self,
        until: Callable[[float], float],
        say: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> list[Awaited]:
        """What the other ranks left; waits for those that are still at it.

        Args:
            until: when to wait no longer, for a wait that began at the time given; asked again and again.
            say: told what is waited for, once.
        """
        others = [number for number in range(self.rank.world) if number != self.rank.number]
        began, said = self._clock(), False
        while True:
            pending = [number for number in others if self._is_pending(number)]
            now = self._clock()
            if not pending or now >= until(began):
                return [self._awaited(number, number in pending) for number in others]
            if now - began >= _SILENT_S and not said:
                said = True
                say(f"waiting for what {ranks_named(pending)} saw, {until(began) - now:.0f} s at most")
            sleep(_TICK_S)

    def close(self) -> None:
        """The first rank has taken all: the folder is removed."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _arrivals(self) -> Path:
        return self._folder / f"torch-{socket.gethostname()}"

    def _of(self, number: int) -> Path:
        return self._folder / f"rank-{number}"

    def _here(self, number: int) -> dict[str, Any]:
        try:
            return read_json(self._of(number) / _HERE)
        except (FileNotFoundError, TracksideError):
            return {}

    def _is_pending(self, number: int) -> bool:
        """Whether a part of this rank is still to be expected."""
        here = self._here(number)
        if not here:
            return self._clock() - self._joined < _REGISTERS_S
        # In this order: it may leave its part and end meanwhile.
        alive = _is_alive(here)
        return alive and not (self._of(number) / _PART).exists()

    def _awaited(self, number: int, pending: bool) -> Awaited:
        here = self._here(number)
        if not here:
            return Awaited(number, came=False)
        host = str(here.get("host", ""))
        try:
            part = read_json(self._of(number) / _PART)
        except (FileNotFoundError, TracksideError):
            capture = self._of(number) / _CAPTURE
            return Awaited(number, came=True, capture=capture, host=host, alive=pending)
        return Awaited(number, came=True, part=part, host=host)

    def _sweep(self) -> None:
        """Take away what ranks of earlier runs have left, whose first one was killed."""
        for rank in self._all.glob("*/rank-*"):
            with contextlib.suppress(OSError, ValueError, TracksideError):
                here = read_json(rank / _HERE)
                old = time.time() - float(here["started_s"]) > _SAME_START_S
                # Of the same name and old: of an earlier run, on whichever machine.
                if old and (rank.parent == self._folder or not _is_alive(here)):
                    shutil.rmtree(rank)
                    if not any(rank.parent.glob("rank-*")):
                        shutil.rmtree(rank.parent, ignore_errors=True)


def _is_alive(here: Mapping[str, Any]) -> bool:
    """Of a process on another machine nothing can be seen: it counts as alive for as long as it may take."""
    if here and here.get("host") != socket.gethostname():
        return True
    return bool(here.get("process")) and here["process"] == process_mark(int(here.get("pid", 0)))


def ranks_named(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 1, 4-7`."""
    parts: list[tuple[int, int]] = []
    for one in sorted(ranks):
        if parts and parts[-1][1] == one - 1:
            parts[-1] = parts[-1][0], one
        else:
            parts.append((one, one))
    told = ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {told}"
