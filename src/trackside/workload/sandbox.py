"""What a worker gives up before user code runs: namespaces, file writes, signals, inherited descriptors.

Each layer is used where the kernel has it; `Isolation` names what could not be had, so that a
certificate can be lowered instead of a run refused.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import struct
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Isolation", "close_other_descriptors", "die_with_parent", "enter", "subreaper"]

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_CLONE_NEWIPC = 0x08000000
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36

# The same numbers on every architecture (Documentation/userspace-api/landlock.rst).
_LANDLOCK_CREATE = 444
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT = 446
_LANDLOCK_VERSION_FLAG = 1
_LANDLOCK_RULE_PATH = 1
_FS_EXECUTE, _FS_WRITE_FILE, _FS_READ_FILE, _FS_READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
# Bits 0-12 came with ABI 1, then REFER (2), TRUNCATE (3), IOCTL_DEV (5).
_FS_BITS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1 << 0, 1 << 1
_SIGNAL_SCOPE_ABI = 6

_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_SECCOMP_ALLOW, _SECCOMP_ERRNO = 0x7FFF0000, 0x00050000
# Where a filter finds the call's number, its architecture, the low half of its first argument, and
# the low half of its fifth, which the high half follows.
_SECCOMP_NUMBER_AT, _SECCOMP_ARCHITECTURE_AT, _SECCOMP_FIRST_AT, _SECCOMP_FIFTH_AT = 0, 4, 16, 48
_BPF_LOAD, _BPF_JUMP_EQUAL, _BPF_JUMP_AT_LEAST, _BPF_RETURN = 0x20, 0x15, 0x35, 0x06
# x86-64's second set of numbers for the same calls (x32) starts here; no other number is as large.
_SECOND_NUMBERS = 0x40000000
# sched_setaffinity, sched_setscheduler, sched_setattr, setpriority, ioprio_set: an arm keeps its cores.
# ptrace, process_vm_readv, process_vm_writev, pidfd_getfd: other processes are none of its business.
# io_uring_setup, _enter and _register: its kernel threads run on cores of their own.
# add_key, request_key, keyctl: keys are the user's.
# connect, sendmsg, sendmmsg: by these one asks daemons outside (a path is no file to Landlock).
_X86_64 = (203, 144, 314, 141, 251, 101, 310, 311, 438, 425, 426, 427, 248, 249, 250, 42, 46, 307)
_AARCH64 = (122, 119, 274, 140, 30, 117, 270, 271, 438, 425, 426, 427, 217, 218, 219, 203, 211, 269)
# Then prlimit64, for other processes than the own (0), since one with the same user id could limit the judge;
# prctl, for PR_SET_CHILD_SUBREAPER, since orphans belong to the supervisor; and sendto, with an address.
_DENIED = {
    "x86_64": (0xC000003E, _X86_64, 302, 157, 44),
    "aarch64": (0xC00000B7, _AARCH64, 261, 167, 206),
}
# What the driver of an accelerator may want, and nobody else: socket, without which CUDA does not start
# (error 304, driver 580); timerfd_create, timer_create, setitimer and alarm (which arm64 has not): timers go
# off while their process is frozen, and the interrupt is charged to whoever runs then, the other arm.
_DRIVERS_ONLY = {"x86_64": (41, 283, 222, 38, 37), "aarch64": (198, 85, 107, 103)}
_JOIN_SESSION_KEYRING, _KEYCTL = 1, {"x86_64": 250, "aarch64": 219}

# Folders that an interpreter, a compiler and the CUDA libraries read. The run store is not among them.
_READABLE = (
    "/usr",
    "/lib",
    "/lib64",
    "/lib32",
    "/bin",
    "/sbin",
    "/etc",
    "/opt",
    "/proc",
    "/sys",
    "/run",
    "/var/lib",
)
# Harmless ones, and accelerators. Terminals, disks, the kernel log and shared memory of others are left out:
# on a terminal a candidate could write a verdict of its own.
_DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "dri", "dxg", "kfd", "infiniband")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Isolation:
    """Which layers hold in this worker, and why others do not."""

    user_namespace: bool = False
    network_namespace: bool = False
    files: bool = False
    signals: bool = False
    system_calls: bool = False
    missing: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def subreaper() -> None:
    """Adopt orphaned descendants, so that a daemonised child can still be found and ended."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def close_other_descriptors(keep: Iterable[int]) -> None:
    """Close everything above stderr but the descriptors named."""
    low = 3
    for fd in sorted({*keep, resource.getrlimit(resource.RLIMIT_NOFILE)[0]}):
        if fd > low:
            os.closerange(low, fd)
        low = max(low, fd + 1)


def enter(
    readable: Iterable[str], writable: Iterable[str], disabled: Iterable[str] = (), driver: bool = False
) -> Isolation:
    """Give up what user code does not need.

    Args:
        disabled: layers to leave out (tests use it).
        driver: leave it sockets and timers, which the driver of an accelerator may want.
    """
    isolation = Isolation()
    skip = set(disabled)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if (keyctl := _KEYCTL.get(os.uname().machine)) is not None:
        _libc.syscall(keyctl, _JOIN_SESSION_KEYRING, None)
    _enter_namespaces(isolation, skip)
    _restrict_files_and_signals(isolation, list(readable), list(writable), skip)
    _deny_system_calls(isolation, skip, driver)
    return isolation


def _enter_namespaces(isolation: Isolation, skip: set[str]) -> None:
    if "namespaces" in skip:
        isolation.missing.append("user and network namespace: switched off")
        return
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC) != 0:
        reason = os.strerror(ctypes.get_errno())
        isolation.missing.append(f"user and network namespace: {reason}")
        return
    isolation.network_namespace = True
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        isolation.user_namespace = True
    except OSError as error:
        isolation.missing.append(f"user namespace mapping: {error.strerror}")


def _restrict_files_and_signals(
    isolation: Isolation, readable: list[str], writable: list[str], skip: set[str]
) -> None:
    if "landlock" in skip:
        isolation.missing.append("Landlock: switched off")
        return
    abi = _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_LANDLOCK_VERSION_FLAG))
    if abi < 1:
        isolation.missing.append(
            "Landlock: this kernel has none; the worker can write files and send signals"
        )
        return
    handled = (1 << _FS_BITS_BY_ABI[min(abi, 5)]) - 1
    # Terminal and device ioctls stay allowed: the CUDA driver is nothing but ioctls on /dev/nvidia*.
    handled &= (1 << 15) - 1
    scoped = (_SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL) if abi >= _SIGNAL_SCOPE_ABI else 0
    attributes = struct.pack("<QQQ", handled, 0, scoped)
    size = 24 if abi >= _SIGNAL_SCOPE_ABI else 16 if abi >= 4 else 8
    ruleset = _libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        isolation.missing.append(f"Landlock: {os.strerror(ctypes.get_errno())}")
        return
    read = _FS_EXECUTE | _FS_READ_FILE | _FS_READ_DIR
    for path in (*_READABLE, *readable):
        _allow(ruleset, path, read)
    _allow(ruleset, "/dev", _FS_READ_DIR)
    for device in (path for pattern in _DEVICES for path in Path("/dev").glob(pattern)):
        _allow(ruleset, str(device), read | _FS_WRITE_FILE | (handled & (1 << 14)))
    # The CUDA driver names its threads in /proc/self/task; the rest of /proc (sysctls, the priority of the
    # session) stays read-only.
    _allow(ruleset, f"/proc/{os.getpid()}/task", read | _FS_WRITE_FILE | (handled & (1 << 14)))
    for path in writable:
        _allow(ruleset, path, handled)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _libc.syscall(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)) != 0:
        isolation.missing.append(f"Landlock: {os.strerror(ctypes.get_errno())}")
    else:
        isolation.files = True
        isolation.signals = abi >= _SIGNAL_SCOPE_ABI
        if not isolation.signals:
            isolation.missing.append(
                f"Landlock ABI {abi} has no signal scope (needs 6): the worker can signal the judge"
            )
    os.close(ruleset)


def _deny_system_calls(isolation: Isolation, skip: set[str], driver: bool) -> None:
    """Answer EPERM to calls that reach for other cores, priorities or processes; all others are allowed."""
    machine = os.uname().machine
    if "seccomp" in skip or machine not in _DENIED:
        reason = "switched off" if "seccomp" in skip else f"no table for {machine}"
        isolation.missing.append(f"system call filter: {reason}")
        return
    architecture, numbers, limits, control, send = _DENIED[machine]
    # Each line: what to do, where to go on if it holds and if not (None: the next line), and with what. A
    # 32-bit call, which any process can make, has other numbers and is refused whatever it is.
    refused = numbers if driver else (*numbers, *_DRIVERS_ONLY[machine])
    program: list[tuple[int, str | None, str | None, int]] = [
        (_BPF_LOAD, None, None, _SECCOMP_ARCHITECTURE_AT),
        (_BPF_JUMP_EQUAL, None, "refuse", architecture),
        (_BPF_LOAD, None, None, _SECCOMP_NUMBER_AT),
        (_BPF_JUMP_AT_LEAST, "refuse", None, _SECOND_NUMBERS),
        *((_BPF_JUMP_EQUAL, "refuse", None, number) for number in refused),
        (_BPF_JUMP_EQUAL, "limits", None, limits),
        (_BPF_JUMP_EQUAL, "send", None, send),
        (_BPF_JUMP_EQUAL, "control", "allow", control),
        (_BPF_LOAD, None, None, _SECCOMP_FIRST_AT),
        (_BPF_JUMP_EQUAL, "allow", "refuse", 0),
        (_BPF_LOAD, None, None, _SECCOMP_FIFTH_AT),
        (_BPF_JUMP_EQUAL, None, "refuse", 0),
        (_BPF_LOAD, None, None, _SECCOMP_FIFTH_AT + 4),
        (_BPF_JUMP_EQUAL, "allow", "refuse", 0),
        (_BPF_LOAD, None, None, _SECCOMP_FIRST_AT),
        (_BPF_JUMP_EQUAL, "refuse", "allow", _PR_SET_CHILD_SUBREAPER),
        (_BPF_RETURN, None, None, _SECCOMP_ALLOW),
        (_BPF_RETURN, None, None, _SECCOMP_ERRNO | errno.EPERM),
    ]
    end = len(program)
    places = {"limits": end - 10, "send": end - 8, "control": end - 4, "allow": end - 2, "refuse": end - 1}
    lines = [
        struct.pack("<HBBI", what, *(0 if to is None else places[to] - at - 1 for to in (yes, no)), value)
        for at, (what, yes, no, value) in enumerate(program)
    ]
    code = ctypes.create_string_buffer(b"".join(lines))
    header = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(code))
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) == 0:
        isolation.system_calls = True
    else:
        isolation.missing.append(f"system call filter: {os.strerror(ctypes.get_errno())}")


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _FS_EXECUTE | _FS_WRITE_FILE | _FS_READ_FILE | (1 << 14)
        rule = struct.pack("<Qi", access, fd)
        _libc.syscall(
            _LANDLOCK_ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(_LANDLOCK_RULE_PATH),
            rule,
            ctypes.c_uint32(0),
        )
    finally:
        os.close(fd)
