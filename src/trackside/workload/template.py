"""A process that imported the framework and nothing else; workers fork from it.

It runs no tensor operation and touches no device: a fork after one parallel operation hangs, and a
CUDA context does not survive a fork. Started by the supervisor, steered by the judge.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import tempfile
import time
from typing import Any

from trackside.workload import sandbox
from trackside.workload.channel import Channel, ChannelClosed

__all__ = ["main"]


def main(argv: list[str]) -> None:
    """Serve spawn requests on the descriptor given until the judge hangs up.

    Further arguments name modules to import before the first fork.
    """
    sandbox.die_with_parent()
    sys.dont_write_bytecode = True
    channel = Channel(socket.socket(fileno=int(argv[0])), from_judge=True)
    started = time.monotonic()
    ready: dict[str, Any] = {"pid": os.getpid()}
    try:
        import torch

        ready["torch"] = torch.__version__
    except ImportError as error:
        ready["missing"] = str(error)
    if "missing" not in ready:
        for module in argv[1:]:
            importlib.import_module(module)
    # Workers collect before timing; what is here already need not be walked by each of them.
    gc.collect()
    gc.freeze()
    ready["seconds"] = time.monotonic() - started
    try:
        channel.send(ready)
        _serve(channel)
    except ChannelClosed:
        return


def _serve(channel: Channel) -> None:
    while True:
        request = channel.receive(None)
        if request["op"] == "spawn":
            control, log = channel.fds[:2]
            channel.fds.clear()
            pid = os.fork()
            if pid == 0:
                channel.close()
                _become(request, control, log)
            os.close(control)
            os.close(log)
            channel.send({"pid": pid})
        elif request["op"] == "reap":
            channel.send({"status": _reap(request["pid"], request["seconds"])})


def _become(request: dict[str, Any], control: int, log: int) -> None:
    """In the child: pin, confine, then run the role's loop. Never returns."""
    code = 1
    try:
        sandbox.die_with_parent()
        # A group of its own, but the supervisor's session: sessions share CPUs equally (autogroup), whatever
        # the priorities of their processes, and `awake` must always lose.
        os.setpgid(0, 0)
        # Ctrl-C belongs to the judge, which ends its workers itself. What the supervisor ignores is put back:
        # programs that user code starts would inherit it, and could not be terminated.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sandbox.close_other_descriptors([control])
        os.sched_setaffinity(0, request["cpus"])
        os.chdir(request["folder"])
        os.environ.update(request["environment"])
        # What was imported before the fork may have asked for its place already, and may not write there.
        tempfile.tempdir = None
        isolation = sandbox.enter(
            request["readable"],
            request["writable"],
            request["unprotected"],
            driver=request["device"] != "cpu",
        )
        import torch

        torch.set_num_threads(request["threads"])
        role = importlib.import_module(request["module"])
        role.serve(Channel(socket.socket(fileno=control), from_judge=True), request, isolation)
        code = 0
    except ChannelClosed:
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _reap(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if done:
            return status
        if time.monotonic() > deadline:
            return None
        time.sleep(0.002)


if __name__ == "__main__":
    main(sys.argv[1:])
