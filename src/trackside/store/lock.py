"""The lock that keeps two measurements off one device, on this machine and for this user.

An flock, so that the kernel releases it with the process, however that ends; who holds it says so in a note
beside it. CPUs are locked by core: sets that meet on a core exclude each other, others measure side by side.
"""

import math
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from trackside.records.errors import TracksideError
from trackside.store.job_note import note_device, note_waiting
from trackside.store.lock_files import lock_folder as _lock_folder
from trackside.store.lock_files import try_lock, unlock
from trackside.store.lock_holders import Ancestry, Holder, HolderNote, holder_named, holders_in

__all__ = ["DeviceLock", "gpu_key"]

# flock cannot wait with a limit, so waiting is asking again: seldom enough not to disturb a measurement under
# way, often enough that nobody notices the delay beside one of seconds.
_POLL_S: Final = 0.1
# What runs below a holder has others wait for it, and so must not wait for them as long as it takes: each
# could wait for the other. This is for who has a device for a moment only, to see whether it is free.
_BELOW_S: Final = 5.0
_CPUS: Final = Path("/sys/devices/system/cpu")


def gpu_key(gpu: int | str) -> str:
    """The key of a GPU, by what NVML calls it; `compare` makes the same of it."""
    # What CUDA_VISIBLE_DEVICES names may hold anything.
    return "gpu-" + re.sub("[^A-Za-z0-9]", "-", str(gpu))


class DeviceLock:
    """Use of a device while the `with` block runs, exclusive or shared with others that share it.

    The lock belongs to the open file: a child made by fork alone would keep it past this process's death.
    Children started through exec (subprocess, spawn) do not get it. What runs below the holder is part of
    what the holder measures, and goes ahead: a command that is compared may itself be a measurement. Those
    below one holder keep off each other.

    Who takes several takes the GPUs first, in the order of their keys, then the CPUs: as everyone keeps to
    that, nobody waits for who waits for them.

    Args:
        key: `cpu`, the set of CPUs that this process may run on when it enters, or `gpu-<UUID>`.
        wait: True waits as long as it takes, a number that many seconds, False not at all.
        on_wait: called with a holder's facts (`pid`, `verb`, `since`, `process`, and `more` for how many hold
            it beside this one; any may be missing) when waiting begins, and again when the holders change.
        verb: what this process does with the device, for those who wait.
        shared: together with others that share it, and with none that does not.
        folder: where lock files are; by default one folder per user and machine.

    Raises:
        TracksideError: on entry; kind `busy`, when someone else holds the device for longer than `wait`, or
            waiting could have no end; kind `store`, when there is no safe place for lock files.
    """

    def __init__(
        self,
        key: str,
        wait: bool | float = True,
        on_wait: Callable[[Holder], None] | None = None,
        *,
        verb: str = "",
        shared: bool = False,
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", key):
            raise ValueError(f"a device key is letters, digits, dots and hyphens, not {key!r}")
        self.key = key
        self._limit_s = (math.inf if wait else 0.0) if isinstance(wait, bool) else float(wait)
        self._on_wait = on_wait
        self._verb = verb
        self._shared = shared
        self._folder = folder
        self._clock = clock
        self._sleep = sleep
        self._held: tuple[int, HolderNote, list[int]] | None = None

    def __enter__(self) -> Self:
        if self._held is not None:
            raise RuntimeError(f"the lock on {self.key} is held by this object already")
        folder = self._folder if self._folder is not None else _lock_folder()
        deadline = self._clock() + self._limit_s
        # Nobody else looks at the notes of the dead where nobody waits.
        holders_in(folder)
        note = HolderNote(folder, self._verb)
        descriptors: list[int] = []
        try:
            # All in one order, which everyone keeps: nobody waits for who waits for them.
            for part in _parts(self.key):
                descriptors.append(self._take(folder, part, deadline, note))
            note.write()
        except BaseException:
            _release(descriptors, note)
            raise
        self._held = os.getpid(), note, descriptors
        note_device(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        taker, note, descriptors = held
        if taker == os.getpid():
            _release(descriptors, note)
            note_device(-1)
        else:
            # A fork that leaves the block too has nothing to give back.
            for descriptor in (*descriptors, *note.descriptors):
                with suppress(OSError):
                    os.close(descriptor)

    def _take(self, folder: Path, part: str, deadline: float, note: HolderNote) -> int:
        """A descriptor that holds the lock; where processes above this one do, that of those below them."""
        ancestry: Ancestry | None = None
        below, looked, announced = False, False, None
        while (descriptor := try_lock(folder / f"{part}.lock", self._shared)) is None:
            everyone = holders_in(folder)
            if ancestry is None:
                ancestry = Ancestry()
                # For those who wait for what this one has got so far.
                note.write()
                if below := bool(ancestry.among(everyone)):
                    deadline = min(deadline, self._clock() + _BELOW_S)
            found = [holder for holder in everyone if part in holder["parts"]]
            above = ancestry.among(found)
            if above and len(above) == len(found):
                part = f"{part}.{above[0]['pid']}"
                continue
            others = [holder for holder in found if holder not in above]
            if any(map(note.is_of_same_thread, others)):
                raise self._own(others)
            if self._clock() >= deadline:
                raise self._busy(others, below)
            names = [(one.get("pid"), one.get("process")) for one in others]
            # Between a holder's locking and its note nobody can say who it is; a moment later one can.
            if names != announced and (names or looked):
                announced = names
                self._announce(others)
            looked = True
            self._sleep(_POLL_S)
        note.parts.append(part)
        return descriptor

    def _announce(self, holders: list[Holder]) -> None:
        first = {**holders[0], "more": len(holders) - 1} if holders else {}
        if self._on_wait is not None:
            self._on_wait(first)
        note_waiting(self.key, holder_named(first))

    def _busy(self, holders: list[Holder], below: bool) -> TracksideError:
        who = ", ".join(map(_described, holders)) or "another process"
        waited = f", after {self._limit_s:g} s of waiting" if 0 < self._limit_s < math.inf else ""
        remedy = "wait for it to end; two measurements on one device at once would both be wrong"
        if below and self._limit_s:
            remedy = (
                "start this measurement by itself, or the one around it with all devices that it needs: "
                "below another it does not wait, since that one may be what the holder waits for"
            )
        return TracksideError("busy", f"{self.key} is in use by {who}{waited}", remedy)

    def _own(self, holders: list[Holder]) -> TracksideError:
        return TracksideError(
            "busy",
            f"{self.key} is in use by {', '.join(map(_described, holders))}, which is this very thread",
            "end that measurement first: one inside the other would time the other",
        )


def _described(holder: Holder) -> str:
    doing = f" (trackside {holder['verb']})" if holder.get("verb") else ""
    since = f" since {holder['since']}" if holder.get("since") else ""
    return f"process {holder.get('pid', '?')}{doing}{since}"


def _parts(key: str) -> list[str]:
    """The locks that make up a device, in the order in which to take them: of CPUs one for each core."""
    if key != "cpu" or not hasattr(os, "sched_getaffinity"):
        return [key]
    return [f"{key}-{core}" for core in sorted(set(map(_core, os.sched_getaffinity(0))))]


def _core(cpu: int) -> int:
    """The first CPU on the same core: two threads of one would disturb each other."""
    try:
        found = (_CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
        return int(re.split("[,-]", found)[0])
    except (OSError, ValueError):
        return cpu


def _release(descriptors: list[int], note: HolderNote) -> None:
    # First the note: who finds the lock held and no note waits a moment, as at its beginning.
    note.remove()
    for descriptor in reversed(descriptors):
        unlock(descriptor)
