"""The process that outlives the judge: it owns every process of a run, ends them, and leaves a record.

The judge talks to it over one channel. When that channel closes, for whatever reason, the tree is
killed, the temporary folder removed, and the fallback record written if no other was.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from trackside.workload import sandbox
from trackside.workload.channel import Channel, ChannelClosed, ChannelForged

__all__ = [
    "CALM_READINGS",
    "descendants",
    "end_below",
    "main",
    "parents_below",
    "remove_tree",
    "signal_name",
    "stat_fields",
    "state_of",
]


_REAP_SECONDS, _CHASE_SECONDS = 0.5, 0.01
CALM_READINGS = 3
"""Readings of /proc without a process of ours that mean there is none: one that hops can be missed."""
_own: set[int] = set()
"""Processes that this one started itself."""
_ended = {"orphans": 0, "cpu_ns": 0}
"""Orphans that came to this process and have ended, and the CPU time that they used."""


def main(argv: list[str]) -> None:
    """Serve the judge on the descriptor given; `argv[1]` is the folder to remove at the end."""
    sandbox.subreaper()
    # Ctrl-C and a closed terminal reach the judge; this process ends when the judge has.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=int(argv[0])), from_judge=True)
    folder = Path(argv[1])
    fallback: dict[str, Any] | None = None
    ended: int | None = None
    try:
        while True:
            # Orphans come to this process: one that a candidate makes per call must not keep its process id.
            while not select.select([channel], [], [], _REAP_SECONDS)[0]:
                _reap()
            request = channel.receive(None)
            if request["op"] == "template":
                fd = channel.fds.pop(0)
                pid = _start_template(fd, request)
                os.close(fd)
                channel.send({"pid": pid})
            elif request["op"] == "awake":
                channel.send({"pids": [_start_awake(cpu) for cpu in request["cpus"]]})
            elif request["op"] == "ended":
                _reap()
                channel.send(dict(_ended))
            elif request["op"] == "chase":
                _chase(_own)
                channel.send({"ok": True})
            elif request["op"] == "fallback":
                fallback = request
                channel.send({"ok": True})
            elif request["op"] == "finish":
                ended = _end_tree()
                remove_tree(folder)
                fallback = None
                channel.send({"ended": ended})
    except (ChannelClosed, ChannelForged, KeyError, IndexError):
        pass
    finally:
        if ended is None:
            _end_tree()
        if fallback is not None:
            _write_fallback(fallback)
        remove_tree(folder)


def _write_fallback(promise: dict[str, Any]) -> None:
    """Leave a record where the judge could not; a final one that is there already stays."""
    from trackside.records.errors import TracksideError
    from trackside.store.runs import Run, RunStore

    run = Run(**{**promise["run"], "folder": Path(promise["run"]["folder"])})
    with contextlib.suppress(TracksideError):
        RunStore(run.folder.parent.parent).write_record(run, promise["record"])


def _start_template(fd: int, request: dict[str, Any]) -> int:
    log = open(request["log"], "ab")  # noqa: SIM115 - handed to the child
    command = [sys.executable, "-P", "-m", "trackside.workload.template", str(fd), *request["preload"]]
    template = subprocess.Popen(
        command,
        pass_fds=[fd],
        env=request["environment"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=request["folder"],
    )
    log.close()
    _own.add(template.pid)
    return template.pid


def _start_awake(cpu: int) -> int:
    command = [sys.executable, "-P", "-m", "trackside.workload.awake", str(cpu), str(os.getpid())]
    quiet = subprocess.DEVNULL
    pid = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd="/").pid
    _own.add(pid)
    # At once, not when Python has started: the arms are timed meanwhile.
    with contextlib.suppress(ProcessLookupError):
        os.sched_setaffinity(pid, {cpu})
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    return pid


def descendants(root: int) -> list[int]:
    """Process ids below `root`, parents before their children, from one reading of /proc."""
    return list(parents_below(root))


def parents_below(root: int) -> dict[int, int]:
    """The parent of every process below `root`, from one reading of /proc; parents come first."""
    return {pid: int(fields[1]) for pid, fields in _stats_below(root).items()}


def end_below(root: int, spared: Collection[int]) -> int:
    """Kill what one reading of /proc shows below `root`; returns how many of these were alive.

    With its process group: one that starts the next and ends is gone before the signal, its group is not.
    """
    found = _stats_below(root)
    # 0 is the group of this process itself, as a namespace shows one that lies outside it.
    shared = {0} | {int(found[pid][2]) for pid in spared if pid in found}
    with contextlib.suppress(ProcessLookupError):  # gone, as a candidate may wish
        shared.add(os.getpgid(root))
    alive = 0
    for pid, fields in found.items():
        if pid in spared:
            continue
        alive += state_of(fields) not in "ZX"
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        if (group := int(fields[2])) not in shared:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
    return alive


def state_of(fields: list[bytes]) -> str:
    """The letter of proc(5): T stopped, Z a zombie.

    One whose first thread alone has ended is called a zombie by the kernel, and works on: here it is R.
    """
    return "R" if fields[0] == b"Z" and int(fields[17]) > 1 else fields[0].decode()


def _stats_below(root: int) -> dict[int, list[bytes]]:
    children: dict[int, list[int]] = {}
    every: dict[int, list[bytes]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = stat_fields(int(entry))
                children.setdefault(int(fields[1]), []).append(int(entry))
                every[int(entry)] = fields
    found: list[int] = []
    stack = [root]
    while stack:
        below = children.get(stack.pop(), [])
        found.extend(below)
        stack.extend(below)
    return {pid: every[pid] for pid in found}


def stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the name: state, parent and so on.

    A process chooses its name: it may hold spaces and brackets, and bytes that are no text.
    """
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


def signal_name(number: int) -> str:
    """SIGKILL and the like; real-time signals have numbers only."""
    names = {known.value: known.name for known in signal.Signals}
    return names.get(number, f"signal {number}")


def remove_tree(root: Path) -> None:
    """Remove a folder that user code could write to, whatever it built there; what refuses stays.

    `shutil.rmtree` gives up on a folder without permissions and recurses once per level, so a chain of a
    thousand folders ends the interpreter's stack. Here every subfolder's folders are first moved to the top.
    """
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    number = 0
    stuck: set[str] = set()
    try:
        while entries := [e for e in _entries(top) if e.name not in stuck]:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        number = _empty(entry.name, top, number)
                        os.rmdir(entry.name, dir_fd=top)
                    else:
                        os.unlink(entry.name, dir_fd=top)
                except OSError:
                    stuck.add(entry.name)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(root)


def _entries(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return list(found)


def _empty(name: str, top: int, number: int) -> int:
    """Remove the files of a folder in `top` and move its folders to `top`, numbered from `number` on."""
    os.chmod(name, 0o700, dir_fd=top)
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        for entry in _entries(folder):
            if entry.is_dir(follow_symlinks=False):
                # A folder that its owner may not write to cannot be moved.
                os.chmod(entry.name, 0o700, dir_fd=folder)
                number += 1
                os.rename(entry.name, f".trackside-removing-{number}", src_dir_fd=folder, dst_dir_fd=top)
            else:
                os.unlink(entry.name, dir_fd=folder)
    finally:
        os.close(folder)
    return number


def _end_tree() -> int:
    """Kill everything below this process until nothing is left; orphans come to us, the subreaper."""
    ended = calm = 0
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        pids = descendants(os.getpid())
        calm = 0 if pids else calm + 1
        if calm == CALM_READINGS:
            break
        ended += end_below(os.getpid(), ())
        _chase(())
        _reap()
    return ended


def _chase(spared: Collection[int]) -> None:
    """Kill orphans the moment they come, for some milliseconds.

    One that starts the next and ends is gone before a reading of all of /proc is over.
    """
    until = time.monotonic() + _CHASE_SECONDS
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while time.monotonic() < until:
        try:
            mine = {int(pid) for pid in children.read_bytes().split()} - set(spared)
        except OSError:  # a kernel without this file
            time.sleep(_CHASE_SECONDS)
            return
        for pid in mine:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if mine:
            _reap()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.wait4(-1, os.WNOHANG))[0]:
            pid, _, used = ended
            if pid not in _own:
                _ended["orphans"] += 1
                _ended["cpu_ns"] += round(1e9 * (used.ru_utime + used.ru_stime))


if __name__ == "__main__":
    main(sys.argv[1:])
