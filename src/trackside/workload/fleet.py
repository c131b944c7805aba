"""The judge's side of its processes: it asks, freezes, watches and ends supervisor, templates and workers."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trackside
from trackside.records.errors import TracksideError
from trackside.store.runs import Run
from trackside.workload.channel import Channel, ChannelClosed, ChannelForged, ChannelTimeout, pair
from trackside.workload.memory import KEPT_HEAP_BYTES, LARGE_BLOCK_BYTES
from trackside.workload.supervisor import (
    CALM_READINGS,
    descendants,
    end_below,
    parents_below,
    remove_tree,
    signal_name,
    stat_fields,
    state_of,
)

__all__ = ["Fleet", "Process", "ProcessFailed", "Template"]

_LOG_BYTES = 64 << 10
_FREEZE_SECONDS = 2.0
# What starting a process takes; one that starts the next and ends, on and on, hardly uses more.
_START_NS = 200_000
_CALM_READINGS, _CALM_SECONDS = 2, 20e-6
_SWEEPS = 100
"""Rounds of ending what a trial left: some 2 s."""
# Enough of the environment to find interpreters, compilers and the CUDA libraries; no secrets.
_KEPT_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "LANG",
    "LC_ALL",
    "TZ",
    "CC",
    "CXX",
    "VIRTUAL_ENV",
    "TORCH_CUDA_ARCH_LIST",
    "TRITON_PTXAS_PATH",
    "TRITON_LIBCUDA_PATH",
)

_KEPT_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(LARGE_BLOCK_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(KEPT_HEAP_BYTES),
}


def _cpu_ns(pid: int) -> int:
    """CPU time of a process's threads, read from outside: the clock that clock_getcpuclockid(3) names."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return 0


def _ended_below_ns(pid: int) -> int:
    """CPU time of the children that a process has waited for, in the kernel's steps of 10 ms."""
    try:
        fields = stat_fields(pid)
        return (int(fields[13]) + int(fields[14])) * 10**9 // os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0


def _state(pid: int) -> str:
    """As `state_of`; X when there is no such process."""
    try:
        return state_of(stat_fields(pid))
    except (OSError, IndexError):
        return "X"


class ProcessFailed(Exception):
    """A worker died, hung or lied. `how` is `died`, `timeout`, `forged` or `memory`."""

    def __init__(self, name: str, how: str, detail: str, log: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name, self.how, self.detail, self.log = name, how, detail, log


@dataclass
class Template:
    """A process that workers fork from."""

    channel: Channel
    facts: dict[str, Any] | None = None
    log: Path = field(default_factory=Path)

    def wait(self, timeout: float) -> dict[str, Any]:
        if self.facts is None:
            try:
                self.facts = self.channel.receive(timeout)
            except (ChannelClosed, ChannelTimeout) as error:
                tail = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
                raise TracksideError(
                    "internal",
                    f"a worker template did not start ({type(error).__name__}): {tail}",
                    "run `python -c 'import torch'` and see whether that works",
                ) from error
            if "missing" in self.facts:
                raise TracksideError(
                    "missing-dependency",
                    f"PyTorch is not installed here ({self.facts['missing']})",
                    "pip install 'trackside[torch]', or run inside the environment that has torch",
                )
        return self.facts


class Process:
    """A worker or the reference process, as the judge holds it."""

    def __init__(self, name: str, pid: int, channel: Channel, template: Template, fleet: Fleet) -> None:
        self.name, self.pid, self.channel = name, pid, channel
        self._template, self._fleet = template, fleet
        self.over_memory: int | None = None
        self.frozen = False
        self.ran_frozen: list[int] = []
        """CPU time, in ns, used between each freeze and the next thaw: more than a moment means work."""
        self.helpers: list[int] = []
        """Processes below this one when `Fleet.strangers` last looked; they freeze and thaw with it."""
        self._cpu_when_frozen = 0
        self._helpers_when_frozen: dict[int, int] = {}
        self.facts: dict[str, Any] = {}

    def ask(self, op: str, timeout: float, fds: Sequence[int] = (), **message: Any) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            ProcessFailed: the process is gone, silent, or wrote something else.
        """
        self.post(op, fds, **message)
        return self.answer(op, timeout)

    def post(self, op: str, fds: Sequence[int] = (), **message: Any) -> None:
        """Send a request; its answer must be taken before the next one is sent."""
        with self._blaming(op, 0.5):
            if self.channel.pending():
                self._unasked()
            self.channel.send({"op": op, **message}, fds)

    def answer(self, op: str, timeout: float) -> dict[str, Any]:
        with self._blaming(op, timeout):
            return self.channel.receive(timeout)

    @contextlib.contextmanager
    def _blaming(self, op: str, timeout: float) -> Iterator[None]:
        try:
            yield
        except ChannelClosed:
            raise self._dead() from None
        except ChannelTimeout:
            raise ProcessFailed(
                self.name, "timeout", f"gave no answer to `{op}` within {timeout:.1f} s", self.log()
            ) from None
        except ChannelForged as error:
            raise ProcessFailed(
                self.name,
                "forged",
                f"wrote bytes on the control channel that our code never writes ({error})",
                self.log(),
            ) from None

    def _unasked(self) -> None:
        message = self.channel.receive(0.5)
        raise ChannelForged(f"an unasked message {str(message)[:60]}")

    def _dead(self) -> ProcessFailed:
        if self.over_memory is not None:
            return ProcessFailed(
                self.name,
                "memory",
                f"used {self.over_memory / 2**30:.1f} GiB, more than allowed, and was ended",
                self.log(),
            )
        status = self._fleet.reap(self._template, self.pid)
        if status is None:
            how = "closed its channel"
        elif os.WIFSIGNALED(status):
            how = f"was killed by {signal_name(os.WTERMSIG(status))}"
        else:
            how = f"exited with code {os.waitstatus_to_exitcode(status)}"
        return ProcessFailed(self.name, "died", how, self.log())

    def freeze(self) -> None:
        """Stop the process with its known helpers, and wait until it has."""
        # Itself once more at the end: a helper may have woken it before it was stopped itself.
        for pid in (self.pid, *self.helpers, self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + _FREEZE_SECONDS
        while time.monotonic() < deadline and _state(self.pid) not in "TtZX":
            pass
        if not self.frozen:
            self._cpu_when_frozen = self._settled_cpu_ns(deadline)
            self._helpers_when_frozen = {pid: _cpu_ns(pid) for pid in self.helpers}
        self.frozen = True

    def _settled_cpu_ns(self, deadline: float) -> int:
        """CPU time once all threads have stopped: each wakes for a moment to notice, some of them late."""
        last, calm = _cpu_ns(self.pid), 0
        while calm < _CALM_READINGS and time.monotonic() < deadline:
            time.sleep(_CALM_SECONDS)
            now = _cpu_ns(self.pid)
            last, calm = now, calm + 1 if now == last else 0
        return last

    def thaw(self) -> None:
        if self.frozen:
            ran = max(0, _cpu_ns(self.pid) - self._cpu_when_frozen)
            # A helper can have itself woken, by a timer of its own.
            ran += sum(max(0, _cpu_ns(pid) - before) for pid, before in self._helpers_when_frozen.items())
            self.ran_frozen.append(ran)
        for pid in (*self.helpers, self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.frozen = False

    def strike(self) -> None:
        """Kill the process and everything below it, without waiting until it has gone."""
        for pid in (*descendants(self.pid), self.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the process and everything below it."""
        self.strike()
        self._fleet.reap(self._template, self.pid)
        self.channel.close()
        self._fleet.dropped(self)

    def catches(self, number: int) -> bool:
        """Whether the process has code of its own run when it gets that signal; read from outside."""
        try:
            for line in Path(f"/proc/{self.pid}/status").read_bytes().splitlines():
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        except OSError:
            pass
        return False

    def thread_ns(self) -> tuple[int, int]:
        """CPU time, in ns, of the first thread, and of all others together; read from outside."""
        first = others = 0
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{self.pid}/task").iterdir():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    used = int((task / "schedstat").read_bytes().split()[0])
                    first, others = (used, others) if task.name == str(self.pid) else (first, others + used)
        return first, others

    def peak_rss(self) -> int | None:
        """Largest resident size so far, read from outside."""
        try:
            for line in Path(f"/proc/{self.pid}/status").read_bytes().splitlines():
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
        except OSError:
            pass
        return None

    def log(self) -> str:
        return self._fleet.log_of(self.pid)


class Fleet:
    """All processes of one run."""

    def __init__(
        self, folder: Path, threads: int, memory_limit: int, unprotected: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.scope = folder
        """Where the present trial's processes may write; a fleet can serve trials one after another."""
        self._threads = threads
        self._memory_limit = memory_limit
        self._unprotected = list(unprotected)
        self._logs: dict[int, bytearray] = {}
        self._selector = selectors.DefaultSelector()
        self._watched: list[Process] = []
        self._template_pids: set[int] = set()
        self._awake_pids: set[int] = set()
        self._newest_pid = ""
        self.orphans: list[int] = []
        """Processes that left the worker that started them, when `strangers` last looked."""
        self.ended = 0
        """CPU time, in ns, that processes which workers started had used when they ended, at that look."""
        self._template_channels: list[Channel] = []
        self._over = threading.Event()
        ours, theirs = pair()
        self._supervisor = ours
        command = [
            sys.executable,
            "-P",
            "-m",
            "trackside.workload.supervisor",
            str(theirs.fileno()),
            str(folder),
        ]
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            env=self._environment({}),
            cwd="/",
        )
        theirs.close()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def promise_record(self, run: Run, record: Mapping[str, Any]) -> None:
        """Have the supervisor write this record if the judge ends without one."""
        place = {"id": run.id, "folder": str(run.folder), "verb": run.verb}
        self._supervisor.send({"op": "fallback", "run": place, "record": dict(record)})
        self._supervisor.receive(10)

    def start_template(self, index: int, preload: Sequence[str]) -> Template:
        ours, theirs = pair()
        log = self.folder / f"template-{index}.log"
        message = {
            "op": "template",
            "environment": self._environment({"PYTHONHASHSEED": str(1000 + 7919 * index)}),
            "log": str(log),
            "folder": str(self.folder),
            "preload": list(preload),
        }
        self._supervisor.send(message, [theirs.fileno()])
        self._template_pids.add(self._supervisor.receive(10)["pid"])
        theirs.close()
        self._template_channels.append(ours)
        return Template(ours, log=log)

    @contextlib.contextmanager
    def awake(self, cpus: Sequence[int]) -> Iterator[None]:
        """Keep these CPUs from falling idle meanwhile."""
        self._supervisor.send({"op": "awake", "cpus": list(cpus)})
        pids = set(self._supervisor.receive(10)["pids"])
        self._awake_pids |= pids
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._awake_pids -= pids

    def spawn(
        self,
        template: Template,
        name: str,
        module: str,
        device: str,
        cpus: Sequence[int],
        arm: str,
        folder: Path,
        readable: Sequence[str],
        timeout: float,
    ) -> Process:
        """Fork a process from `template`; `arm` names the private folder that it may write to."""
        template.wait(timeout)
        private = self.scope / arm
        for part in ("tmp", "cache", "home"):
            if not (private / part).is_dir() or (private / part).is_symlink():
                # User code may have put something else there.
                (private / part).unlink(missing_ok=True)
            (private / part).mkdir(parents=True, exist_ok=True)
        ours, theirs = pair()
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        request = {
            "op": "spawn",
            "module": module,
            "device": device,
            "cpus": list(cpus),
            "threads": self._threads,
            "folder": str(folder),
            "unprotected": self._unprotected,
            "readable": [str(folder), *readable],
            "writable": [str(private)],
            "environment": {
                "HOME": str(private / "home"),
                "TMPDIR": str(private / "tmp"),
                "XDG_CACHE_HOME": str(private / "cache"),
                "TORCHINDUCTOR_CACHE_DIR": str(private / "cache" / "inductor"),
                "TRITON_CACHE_DIR": str(private / "cache" / "triton"),
                "TORCH_EXTENSIONS_DIR": str(private / "cache" / "extensions"),
                "CUDA_CACHE_PATH": str(private / "cache" / "nv"),
            },
        }
        try:
            template.channel.send(request, [theirs.fileno(), write_end])
            pid = template.channel.receive(timeout)["pid"]
        finally:
            theirs.close()
            os.close(write_end)
        self._logs[pid] = bytearray()
        self._selector.register(read_end, selectors.EVENT_READ, pid)
        process = Process(name, pid, ours, template, self)
        self._watched.append(process)
        try:
            process.facts = ours.receive(timeout)
        except (ChannelClosed, ChannelTimeout, ChannelForged):
            raise process._dead() from None
        return process

    def reap(self, template: Template, pid: int) -> int | None:
        try:
            template.channel.send({"op": "reap", "pid": pid, "seconds": 2.0})
            status = template.channel.receive(5)["status"]
        except (ChannelClosed, ChannelTimeout, ChannelForged):
            return None
        return int(status) if status is not None else None

    def dropped(self, process: Process) -> None:
        if process in self._watched:
            self._watched.remove(process)

    def log_of(self, pid: int) -> str:
        return bytes(self._logs.get(pid, b"")).decode(errors="replace")[-4000:]

    def strangers(self, known: Sequence[Process]) -> dict[int, int]:
        """CPU time in ns of live processes below the supervisor that are neither templates nor `known`.

        Those below a known process become its helpers; the others left it, and are in `orphans`.
        """
        # By process id: a worker's orphan has a template's command line and, by adoption, its parent too.
        ours = self._template_pids | self._awake_pids
        owners: dict[int, Process | None] = {p.pid: p for p in known}
        found: dict[int, int] = {}
        for process in known:
            process.helpers = []
        self.orphans = []
        self.ended = self._ask_ended() + sum(_ended_below_ns(process.pid) for process in known)
        for pid, parent in parents_below(self._process.pid).items():
            if pid in ours or pid in owners:
                continue
            owner = owners[pid] = owners.get(parent)
            if _state(pid) in "ZX":
                continue
            found[pid] = _cpu_ns(pid)
            (self.orphans if owner is None else owner.helpers).append(pid)
        return found

    def _ask_ended(self) -> int:
        """CPU time in ns of orphans that have ended, each counted with a little that its start took."""
        answer = self._ask_supervisor("ended")
        return int(answer["cpu_ns"]) + _START_NS * int(answer["orphans"]) if answer else 0

    def _ask_supervisor(self, op: str) -> dict[str, Any]:
        """The supervisor's answer; empty where it has gone, as it does with the run."""
        try:
            self._supervisor.send({"op": op})
            return self._supervisor.receive(10)
        except (ChannelClosed, ChannelTimeout, ChannelForged):
            return {}

    def someone_forked(self) -> bool:
        """Whether any process or thread was started since the last call; cheap, unlike `strangers`."""
        newest = Path("/proc/loadavg").read_text().split()[4]
        before, self._newest_pid = self._newest_pid, newest
        return newest != before

    def pin(self, cpus: Sequence[int]) -> None:
        """Keep the thread that watches the processes on these CPUs."""
        if self._thread.native_id is not None:
            os.sched_setaffinity(self._thread.native_id, cpus)

    def sweep(self) -> None:
        """End whatever a trial left behind, templates aside, and remove what it wrote."""
        for process in list(self._watched):
            process.kill()
        calm = 0
        for _ in range(_SWEEPS):
            alive = end_below(self._process.pid, self._template_pids | self._awake_pids)
            calm = 0 if alive else calm + 1
            if calm == CALM_READINGS:
                break
            self._ask_supervisor("chase")
        if self.scope != self.folder:
            remove_tree(self.scope)

    def close(self) -> int:
        """End every process and remove the folder; returns how many had to be killed."""
        ended = 0
        try:
            self._supervisor.send({"op": "finish"})
            ended = int(self._supervisor.receive(20)["ended"])
        except (ChannelClosed, ChannelTimeout, ChannelForged):
            pass
        self._over.set()
        self._supervisor.close()
        for channel in (*self._template_channels, *(process.channel for process in self._watched)):
            channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._thread.join(2)
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        return ended

    def _watch(self) -> None:
        """Drain the workers' output and watch their memory."""
        last = 0.0
        while not self._over.is_set():
            for key, _ in self._selector.select(0.1):
                self._drain(key)
            now = time.monotonic()
            if now - last > 0.1:
                last = now
                for process in list(self._watched):
                    self._watch_memory(process)

    def _drain(self, key: selectors.SelectorKey) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(key.fd, 1 << 16)
            if not data:
                self._selector.unregister(key.fd)
                os.close(key.fd)
                return
            log = self._logs[key.data]
            log.extend(data)
            del log[:-_LOG_BYTES]

    def _watch_memory(self, process: Process) -> None:
        """End a worker that, with whatever it forked, holds more than it may."""
        used, pids = 0, [process.pid]
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                used += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
                for task in Path(f"/proc/{pid}/task").iterdir():
                    pids += [int(p) for p in (task / "children").read_text().split()]
        if used > self._memory_limit:
            process.over_memory = used
            for pid in reversed(pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        package = str(Path(trackside.__file__).resolve().parent.parent)
        paths = [
            package,
            *(os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p),
        ]
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            **_KEPT_MEMORY,
            **{
                name: str(self._threads)
                for name in (
                    "OMP_NUM_THREADS",
                    "MKL_NUM_THREADS",
                    "OPENBLAS_NUM_THREADS",
                    "NUMEXPR_NUM_THREADS",
                )
            },
            **more,
        }
