"""What a confined process can no longer do. Each attempt runs in a process of its own."""

import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Confined = Callable[..., dict[str, Any]]

_LAYERS = ("user_namespace", "network_namespace", "files", "signals", "system_calls")

_TIMERS = {
    "x86_64": {"timerfd_create": 283, "timer_create": 222, "setitimer": 38, "alarm": 37},
    "aarch64": {"timerfd_create": 85, "timer_create": 107, "setitimer": 103},
}
_ADD_KEY_AND_KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}

_FRAME = """
import ctypes, json, os, resource, signal, socket, struct, sys, time
from pathlib import Path
from trackside.workload import sandbox

judge = os.getppid()
libc = ctypes.CDLL(None, use_errno=True)
isolation = sandbox.enter({readable}, {writable}, {disabled}, driver={driver})
found = {{}}

def attempt(name, action):
    try:
        found[name] = "done" if action() is not False else "refused"
    except OSError as error:
        found[name] = "refused"

{attempts}
print(json.dumps({{"isolation": isolation.to_json(), **found}}))
"""


@pytest.fixture
def confined(tmp_path: Path) -> Confined:
    """Runs attempts in a fresh process after `sandbox.enter`; says of each whether it was done or refused."""
    (tmp_path / "own").mkdir()

    def run(
        attempts: str,
        disabled: tuple[str, ...] = (),
        readable: tuple[str, ...] = (),
        driver: bool = False,
    ) -> dict[str, Any]:
        frame = _FRAME.format(
            readable=[sys.prefix, sys.base_prefix, *readable],
            writable=[str(tmp_path / "own")],
            disabled=list(disabled),
            driver=driver,
            attempts=textwrap.dedent(attempts),
        )
        done = subprocess.run(
            [sys.executable, "-c", frame], capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    return run


def needs(confined: Confined, *layers: str) -> None:
    have = confined("")["isolation"]
    for layer in layers:
        if not have[layer]:
            pytest.skip(f"this kernel has no {layer}: {have['missing']}")


def test_every_layer_is_reported_as_held_or_named_as_missing(confined: Confined) -> None:
    isolation = confined("")["isolation"]
    held = [isolation[k] for k in _LAYERS]
    assert all(held) == (not isolation["missing"])


def test_layers_that_are_switched_off_are_named(confined: Confined) -> None:
    isolation = confined("", disabled=("namespaces", "landlock", "seccomp"))["isolation"]
    assert not any(isolation[k] for k in _LAYERS)
    assert any("system call" in m for m in isolation["missing"])
    assert any("namespace" in m for m in isolation["missing"])
    assert any("Landlock" in m for m in isolation["missing"])


def test_the_judge_s_memory_and_environment_cannot_be_read(confined: Confined) -> None:
    needs(confined, "user_namespace")
    found = confined("""
        attempt("mem", lambda: open(f"/proc/{judge}/mem", "rb"))
        attempt("environ", lambda: open(f"/proc/{judge}/environ", "rb").read())
        attempt("maps", lambda: open(f"/proc/{judge}/maps").read())
        attempt("fd", lambda: [os.readlink(f"/proc/{judge}/fd/{n}") for n in (0, 1, 2)])
        attempt("open fd", lambda: os.open(f"/proc/{judge}/fd/1", os.O_WRONLY))
        attempt("root", lambda: os.listdir(f"/proc/{judge}/root/"))
        attempt("cwd", lambda: os.listdir(f"/proc/{judge}/cwd/"))
        PTRACE_ATTACH = 16
        attempt("ptrace", lambda: libc.ptrace(PTRACE_ATTACH, judge, 0, 0) == 0)
        space = ctypes.create_string_buffer(8)
        local = (ctypes.c_size_t * 2)(ctypes.addressof(space), 8)
        PROCESS_VM_READV = 310 if os.uname().machine == "x86_64" else 270
        remote = (ctypes.c_size_t * 2)(0x400000, 8)
        attempt("vm_readv", lambda: libc.syscall(PROCESS_VM_READV, judge, local, 1, remote, 1, 0) == 8)
    """)
    del found["isolation"]
    assert set(found.values()) == {"refused"}, found


def test_the_same_attempts_succeed_without_the_sandbox(confined: Confined) -> None:
    if Path("/proc/sys/kernel/yama/ptrace_scope").exists() and os.geteuid() != 0:
        pytest.skip("Yama keeps processes of one user apart here already")
    found = confined(
        'attempt("environ", lambda: open(f"/proc/{judge}/environ", "rb").read())',
        disabled=("namespaces", "landlock"),
    )
    assert found["environ"] == "done"


def test_files_outside_the_own_folder_cannot_be_written(confined: Confined, tmp_path: Path) -> None:
    needs(confined, "files")
    theirs = tmp_path / "record.json"
    theirs.write_text("{}")
    found = confined(
        f"""
        here = {str(tmp_path)!r}
        attempt("own", lambda: Path(here, "own", "x").write_text("mine"))
        attempt("new", lambda: Path(here, "y").write_text("forged"))
        attempt("over", lambda: Path(here, "record.json").write_text("forged"))
        attempt("truncate", lambda: os.truncate(Path(here, "record.json"), 0))
        attempt("remove", lambda: os.unlink(Path(here, "record.json")))
        attempt("rename", lambda: os.rename(Path(here, "own"), Path(here, "other")))
        attempt("link", lambda: os.link(Path(here, "record.json"), Path(here, "own", "hard")))
        attempt("etc", lambda: Path("/etc/trackside-test").write_text("x"))
        attempt("sysctl", lambda: open("/proc/sys/kernel/randomize_va_space", "r+"))
        """,
        readable=(str(tmp_path),),
    )
    del found["isolation"]
    assert found.pop("own") == "done"
    assert set(found.values()) == {"refused"}, found
    assert theirs.read_text() == "{}"


def test_files_that_were_not_granted_cannot_be_read(confined: Confined, tmp_path: Path) -> None:
    needs(confined, "files")
    secret = tmp_path / "store" / "secret"
    secret.parent.mkdir()
    secret.write_text("seed")
    found = confined(f"""
        attempt("read", lambda: Path({str(secret)!r}).read_text())
        attempt("list", lambda: os.listdir({str(secret.parent)!r}))
        attempt("home", lambda: os.listdir(os.path.expanduser("~")))
    """)
    assert {found["read"], found["list"], found["home"]} == {"refused"}


def test_terminals_disks_and_the_kernel_log_are_out_of_reach(confined: Confined) -> None:
    needs(confined, "files")
    leader, follower = os.openpty()
    try:
        found = confined(f"""
            attempt("terminal", lambda: os.open({os.ttyname(follower)!r}, os.O_WRONLY | os.O_NOCTTY))
            attempt("kmsg", lambda: os.open("/dev/kmsg", os.O_WRONLY))
            attempt("null", lambda: open("/dev/null", "w").write("x"))
            attempt("random", lambda: open("/dev/urandom", "rb").read(4))
        """)
    finally:
        os.close(leader)
        os.close(follower)
    assert (found["terminal"], found["kmsg"]) == ("refused", "refused")
    assert (found["null"], found["random"]) == ("done", "done")


def test_no_process_outside_can_be_signalled(confined: Confined) -> None:
    needs(confined, "signals")
    # Signal 0 asks and does nothing; each process is asked by itself, since for -1 the kernel hides refusals.
    found = confined("""
        attempt("judge", lambda: os.kill(judge, 0))
        attempt("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(judge), 0))
        def reachable(pid):
            try:
                os.kill(pid, 0)
            except OSError:
                return False
            return pid != os.getpid()
        attempt("anyone", lambda: any(reachable(int(p)) for p in os.listdir("/proc") if p.isdigit()))
        child = os.fork()
        if child == 0:
            time.sleep(60)
        attempt("own child", lambda: os.kill(child, signal.SIGKILL))
    """)
    assert found.pop("own child") == "done"
    del found["isolation"]
    assert set(found.values()) == {"refused"}, found


def test_there_is_no_network_and_no_abstract_socket(confined: Confined) -> None:
    needs(confined, "network_namespace", "signals")
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        name = f"\0trackside-test-{os.getpid()}"
        unix.bind(name)
        unix.listen()
        found = confined(
            f"""
            attempt("loopback", lambda: socket.create_connection(("127.0.0.1", {tcp.getsockname()[1]}), 1))
            attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect({name!r}))
        """,
            disabled=("seccomp",),
        )
    assert (found["loopback"], found["abstract"]) == ("refused", "refused")


def test_daemons_keys_orphans_and_the_session_s_priority_are_out_of_reach(
    confined: Confined, tmp_path: Path
) -> None:
    needs(confined, "files", "system_calls")
    with (
        socket.socket(socket.AF_UNIX) as daemon,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log,
    ):
        daemon.bind(str(tmp_path / "daemon"))
        daemon.listen()
        log.bind(str(tmp_path / "log"))
        asked = f"""
            pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            attempt("pair's own", lambda: pair[0].send(b"x"))
            attempt("reconnect", lambda: pair[0].connect({str(tmp_path / "log")!r}))
            attempt("sendto", lambda: pair[0].sendto(b"x", {str(tmp_path / "log")!r}))
            attempt("sendmsg", lambda: pair[0].sendmsg([b"x"], [], 0, {str(tmp_path / "log")!r}))
        """
        attempts = f"""
            ADD_KEY, KEYCTL = {_ADD_KEY_AND_KEYCTL[os.uname().machine]}
            SESSION, GET_ID = -3, 0
            attempt("daemon", lambda: socket.socket(socket.AF_UNIX).connect({str(tmp_path / "daemon")!r}))
            attempt("pair", lambda: socket.socketpair())
            attempt("key", lambda: libc.syscall(ADD_KEY, b"user", b"trackside-test", b"x", 1, SESSION) >= 0)
            attempt("keyring", lambda: libc.syscall(KEYCTL, GET_ID, SESSION, 0) >= 0)
            attempt("orphans", lambda: libc.prctl(36, 1, 0, 0, 0) == 0)
            attempt("own name", lambda: libc.prctl(15, b"mine", 0, 0, 0) == 0)
            attempt("autogroup", lambda: open("/proc/self/autogroup", "w"))
            attempt("thread's name", lambda: open(f"/proc/self/task/{{os.getpid()}}/comm", "w").write("x"))
        """
        found = confined(attempts)
        allowed = confined(
            f"""
            attempt("socket", lambda: socket.socket(socket.AF_UNIX))
            attempt("daemon", lambda: socket.socket(socket.AF_UNIX).connect({str(tmp_path / "daemon")!r}))
            """,
            driver=True,
        )
        datagrams, open_ones = confined(asked), confined(asked, disabled=("seccomp",))
    kept = {"pair", "own name", "thread's name"}
    assert {name for name, what in found.items() if what == "done"} == kept, found
    assert (allowed["socket"], allowed["daemon"]) == ("done", "refused")
    assert {name for name, what in datagrams.items() if what == "done"} == {"pair's own"}, datagrams
    assert {open_ones[name] for name in ("reconnect", "sendto", "sendmsg")} == {"done"}, open_ones


def test_timers_that_would_interrupt_the_other_arm_cannot_be_made(confined: Confined) -> None:
    needs(confined, "system_calls")
    attempts = f"""
        import threading
        event, made = ctypes.create_string_buffer(64), ctypes.c_int()
        spec = (ctypes.c_long * 4)(0, 0, 1000, 0)
        # SIGEV_NONE, so that nobody is told.
        struct.pack_into("<qii", event, 0, 0, 0, 1)
        arguments = {{
            "timerfd_create": (1, 0, 0),
            "timer_create": (1, event, ctypes.byref(made)),
            "setitimer": (0, spec, None),
            "alarm": (1000, 0, 0),
        }}
        for name, number in {_TIMERS[os.uname().machine]}.items():
            attempt(name, lambda: libc.syscall(number, *arguments[name]) >= 0)
        attempt("signal.setitimer", lambda: signal.setitimer(signal.ITIMER_REAL, 1000))
        attempt("sleep", lambda: time.sleep(0.001))
        done = threading.Event()
        threading.Timer(0.001, done.set).start()
        attempt("threading.Timer", lambda: done.wait(20))
    """
    found, with_driver = confined(attempts), confined(attempts, driver=True)
    allowed = {name for name, what in found.items() if what == "done"}
    assert allowed == {"sleep", "threading.Timer"}, found
    assert set(_TIMERS[os.uname().machine]) <= {n for n, w in with_driver.items() if w == "done"}, with_driver


def test_no_core_file_is_left(confined: Confined) -> None:
    found = confined('attempt("core", lambda: resource.getrlimit(resource.RLIMIT_CORE)[0] == 0)')
    assert found["core"] == "done"


def test_scheduling_and_limits_of_other_processes_cannot_be_changed(confined: Confined) -> None:
    needs(confined, "system_calls")
    found = confined("""
        nice = os.getpriority(os.PRIO_PROCESS, judge)
        attempt("affinity", lambda: os.sched_setaffinity(judge, os.sched_getaffinity(judge)))
        attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, judge, nice))
        limit = resource.RLIMIT_NPROC
        attempt("limits", lambda: resource.prlimit(judge, limit, resource.getrlimit(limit)))
        IOPRIO_SET = 251 if os.uname().machine == "x86_64" else 30
        attempt("ioprio", lambda: libc.syscall(IOPRIO_SET, 1, judge, 0) == 0)
        attempt("own limits", lambda: resource.setrlimit(limit, resource.getrlimit(limit)))
    """)
    del found["isolation"]
    assert found.pop("own limits") == "done"
    assert set(found.values()) == {"refused"}, found


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="32-bit calls are x86's")
def test_the_same_calls_by_their_32_bit_numbers_are_refused_too(confined: Confined) -> None:
    needs(confined, "system_calls")
    found = confined("""
        import mmap
        # push rbx; mov eax,edi; mov ebx,esi; mov ecx,edx; mov edx,r8d; int 0x80; pop rbx; ret
        code = bytes.fromhex("53 89f8 89f3 89d1 4489c2 cd80 5b c3")
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        place = ctypes.addressof(ctypes.c_char.from_buffer(page))
        call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int] * 5)(place)
        SETPRIORITY_32 = 97
        attempt("nice", lambda: call(SETPRIORITY_32, 0, 0, 0, 1) == 0)
        attempt("x32", lambda: libc.syscall(0x40000000 | 141, 0, 0, 1) == 0)
        attempt("changed", lambda: os.getpriority(os.PRIO_PROCESS, 0) == 1)
    """)
    del found["isolation"]
    assert set(found.values()) == {"refused"}, found


def test_descriptors_that_were_not_kept_are_closed() -> None:
    script = """
import os
from trackside.workload import sandbox
a, b = os.pipe()
high = os.dup2(a, 900)
sandbox.close_other_descriptors([b])
listed = os.listdir("/proc/self/fd")
print(sorted(int(n) for n in listed if os.path.exists(f"/proc/self/fd/{n}")), b)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    listed, kept = done.stdout.rsplit(" ", 1)
    assert json.loads(listed) == [0, 1, 2, int(kept)]
