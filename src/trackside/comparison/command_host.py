"""The small process that runs commands: it times them, ends whatever they leave, and outlives the judge.

A process of its own for three reasons: `wait4` reports no peak below that of the process that forked, so the
forking one must be small; as subreaper it finds daemonised children; and when the judge dies it ends the run,
puts files back and leaves a record.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trackside
from trackside.records.errors import TracksideError
from trackside.workload import sandbox
from trackside.workload.channel import Channel, ChannelClosed, ChannelForged, ChannelTimeout, pair
from trackside.workload.supervisor import CALM_READINGS, descendants, end_below, signal_name

if TYPE_CHECKING:
    from trackside.store.runs import Run

__all__ = ["Ended", "Host", "clear", "serve"]

# Helpers such as multiprocessing's resource tracker end a few milliseconds after the program; what is still
# there after this long was left behind.
_GRACE_S = 1.0
# How often a running command's printed output is measured, and the most of it that is kept on disk.
_WATCH_S = 0.25
_MAX_PRINTED_BYTES = 256 << 20
_ANSWER_S = 30.0
# The kernel counts pages in batches, so a child's inherited peak may differ a little from its parent's.
_PEAK_NOISE_BYTES = 1 << 20


@dataclass(frozen=True)
class Ended:
    """How one run of a command ended."""

    ns: int
    """From before the start until its last process was gone."""
    exit_code: int | None
    """None when it was killed or never started; `trouble` says why."""
    trouble: str | None
    timed_out: bool
    cpu_ns: int
    peak_bytes: int
    """Of its largest process; 0 when that is too small to tell from the host's own."""
    left: list[str]
    """Processes that were still there when the grace was over, and were ended."""


class Host:
    """The judge's end. Leaving the `with` block ends every process and puts files back."""

    def __init__(self, scratch: Path) -> None:
        ours, theirs = pair()
        self._channel = ours
        package = str(Path(trackside.__file__).resolve().parent.parent)
        paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "trackside.comparison.command_host",
                str(theirs.fileno()),
                str(scratch),
            ],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            cwd="/",
        )
        theirs.close()
        self._aside: list[tuple[Path, Path]] = []
        self._closed = False

    def promise(self, run: Run, record: Mapping[str, Any]) -> None:
        """Have this record written if the judge ends without one."""
        place = {"id": run.id, "folder": str(run.folder), "verb": run.verb}
        self._ask({"op": "promise", "run": place, "record": dict(record)})

    def set_aside(self, files: Sequence[Path]) -> None:
        """Move these files out of the way until the end, when whatever then has their name makes room."""
        self._aside = [(_hidden(file, self._process.pid), file) for file in files]
        refused = self._ask({"op": "aside", "files": [str(file) for file in files]}).get("refused")
        if refused is not None:
            raise TracksideError(
                "usage", f"cannot move {refused}", "name an --output in a folder that you can write to"
            )

    def run(
        self,
        argv: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        stdout: int,
        stderr: int,
        timeout: float,
    ) -> Ended:
        """Run one command to its end, or to the time limit."""
        message = {
            "op": "run",
            "argv": list(argv),
            "folder": str(folder),
            "environment": dict(environment),
            "timeout": timeout,
        }
        return Ended(**self._ask(message, [stdout, stderr], timeout + _GRACE_S + _ANSWER_S))

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        # A command that still runs is ended by the very arrival of this message.
        with contextlib.suppress(ChannelClosed, ChannelTimeout, ChannelForged):
            self._channel.send({"op": "finish"})
            while "finished" not in self._channel.receive(_ANSWER_S):
                pass
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ANSWER_S)
        # Only where the host was killed is there anything left to put back.
        _put_back([(hidden, file) for hidden, file in self._aside if os.path.lexists(hidden)])

    def _ask(
        self, message: dict[str, Any], fds: Sequence[int] = (), timeout: float = _ANSWER_S
    ) -> dict[str, Any]:
        try:
            self._channel.send(message, fds)
            return self._channel.receive(timeout)
        except (ChannelClosed, ChannelTimeout, ChannelForged) as error:
            raise TracksideError(
                "internal",
                f"the process that runs the commands is gone ({type(error).__name__}: {error})",
                "run it again; a command that kills processes which are not its own would do this",
            ) from error


# -- the other end -------------------------------------------------------------------------------------------


def serve(argv: list[str]) -> None:
    """Answer the judge on the descriptor given; `argv[1]` is the folder to remove at the end."""
    sandbox.subreaper()
    # Ctrl-C and a closed terminal are the judge's affair. Not SIG_IGN, which commands would inherit.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server = _Server(Channel(socket.socket(fileno=int(argv[0])), from_judge=True))
    try:
        server.answer()
    except (ChannelClosed, ChannelForged, KeyError, IndexError):
        pass
    finally:
        server.close(Path(argv[1]))


@dataclass
class _Server:
    channel: Channel
    aside: list[tuple[Path, Path]] = field(default_factory=list)
    promised: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        # A child's end wakes the poll through this pipe, so that neither a wait nor a tick delays the clock.
        self._woken, waker = os.pipe()
        for descriptor in (self._woken, waker):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def answer(self) -> None:
        while True:
            request = self.channel.receive(None)
            reply: dict[str, Any] = {}
            if request["op"] == "run":
                stdout, stderr = self.channel.fds.pop(0), self.channel.fds.pop(0)
                try:
                    reply = self._run(request, stdout, stderr)
                finally:
                    os.close(stdout)
                    os.close(stderr)
            elif request["op"] == "promise":
                self.promised = request
            elif request["op"] == "aside":
                try:
                    self._set_aside([Path(name) for name in request["files"]])
                except OSError as error:
                    reply = {"refused": f"{error.filename}: {error.strerror}"}
            elif request["op"] == "finish":
                self.promised = None
                _put_back(self.aside)
                reply = {"finished": True}
            self.channel.send(reply)

    def close(self, scratch: Path) -> None:
        _end_tree()
        _put_back(self.aside)
        shutil.rmtree(scratch, ignore_errors=True)
        if self.promised is not None:
            # Only now: what this process imports counts into the least peak it can report of others.
            from trackside.store.runs import Run, RunStore

            place = self.promised["run"]
            run = Run(place["id"], Path(place["folder"]), place["verb"])
            with contextlib.suppress(TracksideError):
                RunStore(run.folder.parent.parent).write_record(run, self.promised["record"])

    def _set_aside(self, files: list[Path]) -> None:
        for file in files:
            hidden = _hidden(file, os.getpid())
            if os.path.lexists(file):
                file.rename(hidden)
            self.aside.append((hidden, file))

    def _run(self, request: dict[str, Any], stdout: int, stderr: int) -> dict[str, Any]:
        began = time.monotonic_ns()
        try:
            process = subprocess.Popen(
                request["argv"],
                cwd=request["folder"],
                env=request["environment"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            return _reply(0, None, f"cannot be started: {error}", False, _Use(), [])
        use = _Use()
        status, trouble, left = None, None, list[str]()
        deadline = began + round(request["timeout"] * 1e9)
        ended = began
        while True:
            alive = True
            while alive:
                try:
                    pid, code, usage = os.wait4(-1, os.WNOHANG)
                except ChildProcessError:
                    alive = False
                    break
                if pid == 0:
                    break
                ended = time.monotonic_ns()
                use.add(usage)
                if pid == process.pid:
                    status, deadline = code, ended + round(_GRACE_S * 1e9)
            if not alive:
                break
            trouble = self._watch(deadline, stdout, stderr)
            if trouble is not None:
                if status is not None:
                    left = _names(descendants(os.getpid()))
                use.add(*_end_tree(process.pid))
                ended = time.monotonic_ns()
                break
        # Popen would wait for what was reaped above.
        process.returncode = 0
        if status is None:
            return _reply(ended - began, None, trouble, trouble == _TIME_OVER, use, left)
        code = os.waitstatus_to_exitcode(status)
        by_signal = f"killed by {signal_name(-code)}" if code < 0 else None
        return _reply(ended - began, code if code >= 0 else None, by_signal, False, use, left)

    def _watch(self, deadline: int, stdout: int, stderr: int) -> str | None:
        """Sleep until something happens; what calls for the command's end, if anything does."""
        left = (deadline - time.monotonic_ns()) / 1e9
        if left <= 0:
            return _TIME_OVER
        ready, _, _ = select.select([self._woken, self.channel.fileno()], [], [], min(left, _WATCH_S))
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        if self.channel.fileno() in ready:
            return "ended at the judge's request"
        if not ready and os.fstat(stdout).st_size + os.fstat(stderr).st_size > _MAX_PRINTED_BYTES:
            return f"printed more than {_MAX_PRINTED_BYTES >> 20} MiB"
        return None


_TIME_OVER = "ran past its time"


@dataclass
class _Use:
    cpu_ns: int = 0
    peak_bytes: int = 0

    def add(self, *usages: resource.struct_rusage) -> None:
        for usage in usages:
            self.cpu_ns += round((usage.ru_utime + usage.ru_stime) * 1e9)
            self.peak_bytes = max(self.peak_bytes, usage.ru_maxrss * 1024)


def clear(path: Path) -> None:
    """Remove whatever a command made under an output's name; a folder that was there before was refused."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _hidden(file: Path, pid: int) -> Path:
    return file.with_name(f".{file.name}.trackside-{pid}")


def _put_back(aside: list[tuple[Path, Path]]) -> None:
    """Remove what has the name now; return what had it before."""
    for hidden, file in aside:
        with contextlib.suppress(OSError):
            clear(file)
            if os.path.lexists(hidden):
                hidden.rename(file)
    aside.clear()


def _reply(
    ns: int, exit_code: int | None, trouble: str | None, timed_out: bool, use: _Use, left: list[str]
) -> dict[str, Any]:
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "ns": ns,
        "exit_code": exit_code,
        "trouble": trouble,
        "timed_out": timed_out,
        "cpu_ns": use.cpu_ns,
        "peak_bytes": use.peak_bytes if use.peak_bytes > own + _PEAK_NOISE_BYTES else 0,
        "left": left,
    }


def _end_tree(group: int | None = None) -> list[resource.struct_rusage]:
    """Kill everything below this process until nothing is left; orphans come to us, the subreaper."""
    used = []
    if group is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    deadline, calm = time.monotonic() + 10, 0
    while time.monotonic() < deadline and calm < CALM_READINGS:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.wait4(-1, os.WNOHANG))[0]:
                used.append(ended[2])
        calm = 0 if descendants(os.getpid()) else calm + 1
        end_below(os.getpid(), ())
        time.sleep(0.005)
    return used


def _names(pids: list[int]) -> list[str]:
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_bytes().decode(errors="backslashreplace").strip()
            found.append(f"{name} ({pid})")
    return found


if __name__ == "__main__":
    serve(sys.argv[1:])
