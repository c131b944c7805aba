"""Probes of the operating system: clocks, governors, limits, what it does beside the workload."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.containers import find_container, has_capability
from trackside.machine.doctor.probes.gpu_state import few
from trackside.machine.doctor.probes.system import rdma_cards, tuned_runs
from trackside.machine.doctor.system import System, Unreadable
from trackside.machine.system_files import Unknown, parse_fields

_CLOCKSOURCE = "sys/devices/system/clocksource/clocksource0"
_CPU = "sys/devices/system/cpu"
# Read in user space, without a system call; the others cost hundreds of nanoseconds each time.
_FAST_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
# Data loaders, sockets and shards together hold more than the usual default of 1,024.
_OPEN_FILES = 65_536
# Eight ranks with eight workers each, in which a library opens a thread for each of 192 CPUs, are 12,288.
_PROCESSES = 16_384
# A group that is half full at rest has no room for a job that starts as many threads again.
_PIDS_SHARE = 0.5
# Bytes. An unlimited stack gives threads 2 MiB, and NCCL's topology search overflowed just that.
_THREAD_STACK = 2 << 20
_NCCL_MENDS_STACK = (2, 28)
# Profiles of tuned that set governor and energy preference for speed, or build on one that does.
_FAST_PROFILES = frozenset(
    {
        "accelerator-performance",
        "throughput-performance",
        "latency-performance",
        "network-latency",
        "network-throughput",
        "hpc-compute",
        "virtual-guest",
        "virtual-host",
        "aws",
        "realtime",
        "cpu-partitioning",
        "intel-sst",
    }
)
_SAVING_PROFILES = frozenset(
    {"balanced", "balanced-battery", "powersave", "desktop", "laptop-battery-powersave", "spindown-disk"}
)
# Deeper than that a chain of includes is a loop.
_MOST_INCLUDES = 8
_TIME_SERVICES = ("chronyd", "chrony", "ntpd", "ntp", "ntpsec", "openntpd", "ptp4l", "phc2sys")
# What the training stack expects: the oldest series in which registering GPU memory by DMA-BUF is complete.
_KERNEL = (5, 15)
# Numbers of RHEL 8 to 10, their relatives and SUSE 15 SP4 and later stay old while fixes are taken back.
_ENTERPRISE = re.compile(r"\.el(8|9|10)(\D|$)|-150[4-7]\d\d\.")
# Percent of the last minute in which some task waited. For memory less: waiting for reclaim always hurts.
_PRESSURE = {"cpu": 10.0, "memory": 1.0, "io": 10.0}
# The kernel's own default, with which users may sample their processes.
_PERF_LEVEL = 2
# Bits of CapEff in /proc/self/status.
_CAP_IPC_LOCK, _CAP_SYS_ADMIN, _CAP_SYS_RESOURCE, _CAP_PERFMON = 14, 21, 24, 38
# systemd's boundary between system users, whose files it leaves alone, and others.
_FIRST_USER = 1_000
_BROAD_CALLS = (
    "all",
    "open",
    "openat",
    "creat",
    "fork",
    "vfork",
    "clone",
    "execve",
    "read",
    "write",
    "unlink",
)


# -- what several probes ask for -----------------------------------------------------------------


def _status(system: System) -> Mapping[str, str]:
    """/proc/self/status by its names."""
    rows = (line.partition(":") for line in system.lines("proc/self/status"))
    return {name: value.strip() for name, _, value in rows}


def _limit(system: System, name: str) -> int | None:
    """A soft limit of this process; None is unlimited."""
    if name not in system.limits:
        raise Unreadable(Unknown("/proc/self/limits", f"no line {name}"))
    return system.limits[name]


def _services(system: System) -> frozenset[str]:
    """Services that systemd runs now: each has a control group with its processes."""
    found: set[str] = set()
    for top in ("sys/fs/cgroup", "sys/fs/cgroup/systemd", "sys/fs/cgroup/unified"):
        for path in system.paths(f"{top}/system.slice/*.service/cgroup.procs"):
            if system.text(path):
                found.add(path.split("/")[-2].removesuffix(".service"))
    if not found:
        raise Unreadable(Unknown("systemd's services", "none is visible from here"))
    return frozenset(found)


def _group_values(system: System, controller: str, name: str) -> list[tuple[str, str]]:
    """A control file's value in this process's own group and in those above it; the top group has none."""
    found = []
    for folder in system.cgroup(controller).folders:
        path = str((folder / name).relative_to(system.root))
        if system.exists(path):
            found.append((path, system.text(path)))
    return found


# -- clocks and frequencies ----------------------------------------------------------------------


@probe("os.clocksource")
def clocksource(system: System) -> Outcome:
    now = system.text(f"{_CLOCKSOURCE}/current_clocksource")
    there = system.text(f"{_CLOCKSOURCE}/available_clocksource").split()
    wanted = "tsc, or what the hypervisor reads without a system call"
    if now in _FAST_CLOCKS:
        return passes(now, wanted)
    better = next((clock for clock in _FAST_CLOCKS if clock in there), None)
    fix = [f"echo {better} | sudo tee /{_CLOCKSOURCE}/current_clocksource"] if better else []
    return warns(f"{now} of {', '.join(there)}", wanted, fix)


@probe("os.cpu-governor")
def cpu_governor(system: System) -> Outcome:
    paths = system.paths("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    if not paths:
        return not_applicable("the kernel does not set frequencies here (no cpufreq): the hypervisor does")
    governors = sorted({system.text(path) for path in paths})
    # With intel_pstate and amd-pstate `powersave` follows the load; the energy preference decides then.
    driver = system.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver")
    if governors == ["performance"]:
        return passes(f"performance on {len(paths)} CPUs", "performance")
    return warns(f"{', '.join(governors)} on {len(paths)} CPUs (driver {driver})", "performance")


@probe("os.energy-preference")
def energy_preference(system: System) -> Outcome:
    paths = system.paths(f"{_CPU}/cpu[0-9]*/cpufreq/energy_performance_preference")
    if not paths:
        return not_applicable("the CPU takes no energy preference here")
    preferences = sorted({system.text(path) for path in paths})
    found = f"{', '.join(preferences)} on {len(paths)} CPUs"
    # Where the value was written as a number, 0 is the one for performance.
    if set(preferences) <= {"performance", "0"}:
        return passes(found, "performance")
    fix = [f"echo performance | sudo tee /{_CPU}/cpu*/cpufreq/energy_performance_preference"]
    return warns(found, "performance", fix)


def _included(system: System, profile: str) -> list[str]:
    """A tuned profile's name and those that it builds on, as far as their files can be read."""
    chain: list[str] = []
    todo = [profile]
    while todo and len(chain) < _MOST_INCLUDES:
        name = todo.pop(0)
        chain.append(name)
        for folder in ("etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned"):
            path = f"{folder}/{name}/tuned.conf"
            if system.exists(path):
                found = re.search(r"(?m)^\s*include\s*=\s*(.+)$", system.text(path))
                # Some names are chosen when the profile is loaded: ${f:...}.
                todo += [word for word in re.split(r"[\s,]+", found[1]) if "$" not in word] if found else []
                break
    return chain


@probe("os.tuned-profile")
def tuned_profile(system: System) -> Outcome:
    if not system.exists("etc"):
        raise Unreadable(Unknown("/etc", "not there"))
    if not system.exists("etc/tuned/active_profile"):
        return not_applicable("tuned is not installed")
    active = system.text("etc/tuned/active_profile")
    running = tuned_runs(system)
    names = [name for profile in active.split() for name in _included(system, profile)]
    wanted = "a running tuned with a profile for throughput or low latency"
    better = ["sudo tuned-adm profile accelerator-performance   # latency-performance for serving"]
    if not active:
        return warns("tuned without a profile", wanted, better)
    if not running:
        return warns(f"{active}, but tuned does not run", wanted, ["sudo systemctl enable --now tuned"])
    if _SAVING_PROFILES & set(active.split()):
        return warns(active, wanted, better)
    fast = [name for name in names if name in _FAST_PROFILES]
    if fast:
        return passes(active if active == fast[0] else f"{active}, built on {fast[0]}", wanted)
    if _SAVING_PROFILES & set(names):
        return warns(f"{active}, built on {', '.join(sorted(_SAVING_PROFILES & set(names)))}", wanted, better)
    return unknown(f"tuned's profile {active} is none of its own, and what it builds on cannot be told")


@probe("os.time-sync")
def time_sync(system: System) -> Outcome:
    services = _services(system)
    daemon = next((name for name in _TIME_SERVICES if name in services), None)
    wanted = "a daemon that keeps the clock"
    if daemon:
        return passes(f"{daemon} runs (its offset: chronyc tracking)", wanted)
    if "systemd-timesyncd" in services:
        if system.exists("run/systemd/timesync/synchronized"):
            return passes("systemd-timesyncd has synchronised the clock", wanted)
        return warns(
            "systemd-timesyncd runs and has not synchronised yet", wanted, ["timedatectl timesync-status"]
        )
    return warns("neither chrony nor ntpd, ptp4l or systemd-timesyncd runs", wanted)


# -- limits --------------------------------------------------------------------------------------


@probe("os.nofile")
def open_files(system: System) -> Outcome:
    limit = _limit(system, "Max open files")
    wanted = f"at least {_OPEN_FILES:,}"
    if limit is None or limit >= _OPEN_FILES:
        return passes("unlimited" if limit is None else f"{limit:,}", wanted)
    return warns(f"{limit:,}", wanted)


@probe("os.memlock")
def locked_memory(system: System) -> Outcome:
    limit = _limit(system, "Max locked memory")
    if not rdma_cards(system):
        return not_applicable("there is no RDMA card, and CUDA's pinned memory does not count")
    hard = re.search(r"(?m)^Max locked memory +\S+ +(\S+)", system.text("proc/self/limits"))
    raisable = hard is not None and hard[1] == "unlimited"
    if find_container(system) and not raisable:
        return not_applicable("a container that was started with a limit: see containers.ulimits")
    wanted = "unlimited"
    if limit is None:
        return passes("unlimited", wanted)
    found = f"{limit / 2**20:,.0f} MiB"
    if has_capability(system, _CAP_IPC_LOCK, "CapEff"):
        return passes(f"{found}, which this process may exceed (CAP_IPC_LOCK)", wanted)
    return fails(
        found, wanted, ["ulimit -l unlimited   # in the script that starts the job"] if raisable else []
    )


@probe("os.stack-limit")
def stack_limit(system: System) -> Outcome:
    limit = _limit(system, "Max stack size")
    wanted = "8 MiB, not unlimited"
    if limit is not None and limit >= _THREAD_STACK:
        return passes(f"{limit / 2**20:g} MiB", wanted)
    versions = [v for name, v in system.packages.items() if name.startswith("nvidia-nccl")]
    found = "unlimited: threads get 2 MiB" if limit is None else f"{limit / 2**20:g} MiB"
    if versions and _version(versions[0]) >= _NCCL_MENDS_STACK:
        return passes(f"{found}, which NCCL {versions[0]} mends for itself", wanted)
    return warns(found, wanted, ["ulimit -s 8192   # in the script that starts the ranks, on every node"])


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


@probe("os.process-limit")
def process_limit(system: System) -> Outcome:
    limit = _limit(system, "Max processes")
    free = has_capability(system, _CAP_SYS_RESOURCE, "CapEff") or has_capability(
        system, _CAP_SYS_ADMIN, "CapEff"
    )
    try:
        most = [
            (path, int(text)) for path, text in _group_values(system, "pids", "pids.max") if text.isdigit()
        ]
        now = {
            path.rpartition("/")[0]: int(text)
            for path, text in _group_values(system, "pids", "pids.current")
            if text.isdigit()
        }
    except Unreadable:
        most, now = [], {}
    bad, fix = [], []
    if limit is not None and limit < _PROCESSES and not free:
        bad.append(f"{limit:,} processes for this user")
        fix.append("echo '* - nproc 65536' | sudo tee /etc/security/limits.d/90-nproc.conf   # log in again")
    for path, number in most:
        current = now.get(path.rpartition("/")[0], 0)
        if number < _PROCESSES or current > _PIDS_SHARE * number:
            bad.append(f"{current:,} of {number:,} in /{path}")
            fix.append(
                "systemd unit: [Service] TasksMax=infinity; pods: a higher podPidsLimit of the kubelet"
            )
    wanted = f"room for {_PROCESSES:,} threads, less than half of them taken"
    if bad:
        return warns(few(bad), wanted, dict.fromkeys(fix))
    least = min(
        [number for _, number in most] + ([limit] if limit is not None and not free else []), default=None
    )
    return passes("no limit" if least is None else f"{least:,}", wanted)


@probe("os.cgroup-cpu")
def cpu_quota(system: System) -> Outcome:
    if find_container(system):
        return not_applicable("a container: see containers.cpu-throttling")
    quotas = []
    for path, text in _group_values(system, "cpu", "cpu.max"):
        words = text.split()
        if len(words) == 2 and words[0] != "max":
            quotas.append((path, int(words[0]) / int(words[1])))
    for path, text in _group_values(system, "cpu", "cpu.cfs_quota_us"):
        period = system.number(path.replace("quota", "period"))
        if int(text) > 0 and period > 0:
            quotas.append((path, int(text) / period))
    stats = [parse_fields(text) for _, text in _group_values(system, "cpu", "cpu.stat")]
    wanted = "no quota on this process's control group or those above it"
    if not quotas:
        return passes("no quota", wanted)
    periods, stopped = max(
        ((s.get("nr_periods", 0), s.get("nr_throttled", 0)) for s in stats), default=(0, 0)
    )
    path, cpus = min(quotas, key=lambda quota: quota[1])
    share = f", stopped in {100 * stopped / periods:.0f} % of its periods" if periods else ""
    return warns(f"{cpus:g} CPUs by /{path}{share}", wanted)


@probe("os.cgroup-memory-high")
def memory_high(system: System) -> Outcome:
    if system.cgroup("memory").version == 1:
        return not_applicable("control groups of version 1 have no such limit")
    limits = [(p, t) for p, t in _group_values(system, "memory", "memory.high") if t.isdigit()]
    reached = {
        path.rpartition("/")[0]: parse_fields(text).get("high", 0)
        for path, text in _group_values(system, "memory", "memory.events")
    }
    wanted = "no memory.high, or one that is never reached"
    if not limits:
        return passes("no memory.high", wanted)
    found = []
    hit = False
    for path, text in limits:
        times = reached.get(path.rpartition("/")[0], 0)
        hit = hit or times > 0
        found.append(f"{int(text) / 2**30:,.1f} GiB in /{path}, reached {times:,} times")
    return warns(few(found), wanted) if hit else passes(few(found), wanted)


@probe("os.cpu-pressure")
def pressure(system: System) -> Outcome:
    waited = {}
    for kind in _PRESSURE:
        found = re.search(r"(?m)^some .*?avg60=([\d.]+)", system.text(f"proc/pressure/{kind}"))
        if found:
            waited[kind] = float(found[1])
    if not waited:
        return unknown("/proc/pressure holds no averages")
    found_text = ", ".join(f"{kind} {share:.1f} %" for kind, share in waited.items())
    wanted = (
        ", ".join(f"{kind} below {share:g} %" for kind, share in _PRESSURE.items()) + " of the last minute"
    )
    bad = [kind for kind, share in waited.items() if share >= _PRESSURE[kind]]
    return warns(found_text, wanted) if bad else passes(found_text, wanted)


# -- the kernel ----------------------------------------------------------------------------------


@probe("os.mitigations")
def mitigations(system: System) -> Outcome:
    asked = system.kernel_arguments.get("mitigations", "auto")
    control = system.text(f"{_CPU}/smt/control") if system.exists(f"{_CPU}/smt/control") else ""
    paths = system.paths(f"{_CPU}/vulnerabilities/*")
    active = [path.rpartition("/")[2] for path in paths if system.text(path).startswith("Mitigation")]
    found = f"mitigations={asked}; active: {few(active) or 'none'}"
    wanted = "a choice that leaves multithreading alone: auto (the default), or off on trusted hosts"
    if "nosmt" in asked.split(",") and control in ("off", "forceoff"):
        fix = [
            "in /etc/default/grub: mitigations=auto instead of auto,nosmt, then sudo update-grub and reboot"
        ]
        return warns(f"{found}; multithreading {control}", wanted, fix)
    return passes(found, wanted)


@probe("os.kernel-version")
def kernel_version(system: System) -> Outcome:
    release = system.text("proc/sys/kernel/osrelease")
    wanted = f"{_KERNEL[0]}.{_KERNEL[1]} or newer, or an enterprise kernel"
    number = _version(release.partition("-")[0])
    if len(number) < 2:
        return unknown(f"/proc/sys/kernel/osrelease holds no version but {release[:40]!r}")
    if number >= _KERNEL:
        return passes(release, wanted)
    if _ENTERPRISE.search(release):
        return passes(f"{release}, an enterprise kernel with fixes taken back", wanted)
    return warns(release, wanted)


@probe("os.perf-paranoid")
def perf_paranoid(system: System) -> Outcome:
    level = system.number("proc/sys/kernel/perf_event_paranoid")
    wanted = f"{_PERF_LEVEL} or less"
    if level <= _PERF_LEVEL:
        return passes(str(level), wanted)
    if has_capability(system, _CAP_PERFMON, "CapEff") or has_capability(system, _CAP_SYS_ADMIN, "CapEff"):
        return passes(f"{level}, which does not bind this process (CAP_PERFMON)", wanted)
    return warns(str(level), wanted)


# -- what runs beside the job --------------------------------------------------------------------


@probe("os.remove-ipc")
def remove_ipc(system: System) -> Outcome:
    if find_container(system):
        return not_applicable("a container: logind is the host's")
    user = int(_status(system)["Uid"].split()[0])
    if user < _FIRST_USER:
        return not_applicable(f"user {user} is a system user, whose files logind leaves alone")
    if "systemd-logind" not in _services(system):
        return not_applicable("systemd-logind does not run")
    paths = [p for p in ("usr/lib/systemd/logind.conf", "etc/systemd/logind.conf") if system.exists(p)]
    dropped = [
        path
        for folder in ("usr/lib/systemd", "run/systemd", "etc/systemd")
        for path in system.paths(f"{folder}/logind.conf.d/*.conf")
    ]
    paths += sorted(dropped, key=lambda path: path.rpartition("/")[2])
    default, chosen = "yes", ""
    for path in paths:
        for hash_sign, value in re.findall(r"(?m)^\s*(#?)\s*RemoveIPC\s*=\s*(\w+)", system.text(path)):
            # The shipped file shows as a comment what the distribution compiled in.
            if hash_sign:
                default = value
            else:
                chosen = value
    removes = (chosen or default).lower() in ("yes", "true", "1", "on")
    who = system.environment.get("USER", "")
    lingers = bool(who) and who in system.names("var/lib/systemd/linger")
    wanted = "RemoveIPC=no, or a user that lingers"
    found = f"RemoveIPC={chosen}" if chosen else f"RemoveIPC={default}, the default"
    if not removes:
        return passes(found, wanted)
    return passes(f"{found}; {who} lingers", wanted) if lingers else warns(found, wanted)


@probe("os.automatic-upgrades")
def automatic_upgrades(system: System) -> Outcome:
    if find_container(system):
        return not_applicable("a container: the host's timers count")
    _services(system)  # Without systemd no timer goes off.
    enabled = system.names("etc/systemd/system/timers.target.wants")
    asked = "0"
    for path in system.paths("etc/apt/apt.conf.d/*"):
        for value in re.findall(r'(?m)^\s*APT::Periodic::Unattended-Upgrade\s+"(\w+)"', system.text(path)):
            asked = value
    applies = ""
    if system.exists("etc/dnf/automatic.conf"):
        line = re.search(r"(?m)^\s*apply_updates\s*=\s*(\w+)", system.text("etc/dnf/automatic.conf"))
        applies = line[1].lower() if line else "no"
    wanted = "no upgrades by timer"
    timers = [
        name
        for name in enabled
        if name.startswith(("apt-daily-upgrade", "dnf-automatic")) and not _masked(system, name)
    ]
    apt = [name for name in timers if name.startswith("apt") and asked != "0"]
    # dnf-automatic-install.timer applies whatever the file says.
    dnf = [
        t for t in timers if t == "dnf-automatic-install.timer" or (t.startswith("dnf") and applies == "yes")
    ]
    if apt or dnf:
        fix = [f"sudo systemctl disable --now {name}" for name in apt + dnf]
        return warns(f"{', '.join(apt + dnf)} installs upgrades", wanted, fix)
    return passes(f"{', '.join(timers)} installs nothing" if timers else "no such timer is enabled", wanted)


def _masked(system: System, unit: str) -> bool:
    """A masked unit is a link to /dev/null, which reads as nothing."""
    path = f"etc/systemd/system/{unit}"
    return system.exists(path) and not system.text(path)


@probe("os.audit-rules")
def audit_rules(system: System) -> Outcome:
    if system.kernel_arguments.get("audit") in ("0", "off"):
        return passes("audit=0 on the kernel's command line", "no rule that looks at every call")
    if not system.exists("proc/self/loginuid"):
        return not_applicable("the kernel was built without auditing")
    if find_container(system):
        return unknown("the host's rules cannot be seen from a container")
    wanted = "no rule that looks at every open, fork or exec"
    if not system.exists("etc/audit"):
        _services(system)
        return passes("no audit daemon is installed", wanted)
    rules = [line.strip() for line in system.lines("etc/audit/audit.rules")]
    if any(re.match(r"-a\s+(never,task|task,never)", rule) for rule in rules):
        return passes("system-call auditing is off (never,task)", wanted)
    broad = [rule for rule in rules if _broad(rule)]
    if broad:
        return warns(f"{len(broad)} such rules, the first: {broad[0][:80]}", wanted)
    return passes(
        f"{sum(rule.startswith('-') for rule in rules)} lines in audit.rules, none for every call", wanted
    )


def _broad(rule: str) -> bool:
    """Whether a rule is evaluated at every call of the usual kinds, wherever it goes."""
    if not re.match(r"-[aA]\s+(always,exit|exit,always)", rule) or re.search(r"-F\s*(dir|path)=", rule):
        return False
    calls = [call for names in re.findall(r"-S\s*(\S+)", rule) for call in names.split(",")]
    return not calls or any(call in _BROAD_CALLS for call in calls)


@probe("os.orphans")
def orphans(system: System) -> Outcome:
    """PyTorch names its shared files after the process that made them: torch_PID_RANDOM_COUNT."""
    if not system.exists("dev/shm"):
        raise Unreadable(Unknown("/dev/shm", "not there"))
    if not system.exists("proc/self"):
        raise Unreadable(Unknown("/proc", "not there"))
    hidden = [option for option in system.mount_of("/proc").options if option.startswith("hidepid=")]
    files = system.names("dev/shm")
    dead: dict[str, int] = {}
    for name in files:
        made_by = re.match(r"torch_(\d+)_", name)
        if made_by and not system.exists(f"proc/{made_by[1]}"):
            dead[made_by[1]] = dead.get(made_by[1], 0) + 1
    wanted = "no shared memory of processes that are gone"
    if not dead:
        return passes(f"{len(files)} files in /dev/shm, none of a PyTorch process that is gone", wanted)
    if find_container(system) or (hidden and hidden[0] not in ("hidepid=0", "hidepid=off")):
        return unknown(
            f"{len(dead)} makers of files in /dev/shm are not to be seen, and may be hidden from here"
        )
    count = sum(dead.values())
    fix = [f"rm /dev/shm/torch_{pid}_*   # unless a container that shares /dev/shm made them" for pid in dead]
    return warns(f"{count} files of {few(f'process {pid}' for pid in dead)} that is gone", wanted, fix[:4])
