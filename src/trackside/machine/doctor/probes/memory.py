"""Probes of memory: swap, huge pages, limits, write-back, and what variables tell PyTorch's allocators."""

from __future__ import annotations

import re

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.common_facts import gibibytes, version
from trackside.machine.doctor.probes.gpu_state import few
from trackside.machine.doctor.system import System, Unreadable
from trackside.machine.system_files import parse_fields

_HUGE_PAGES = "sys/kernel/mm/transparent_hugepage"
_HUGE_POOLS = "sys/kernel/mm/hugepages"
# Bytes. Idle daemons' pages are that many; more is somebody's work.
_SWAPPED = 64 << 20
# Above it reclaim weighs process memory against file cache that is read once; the kernel's default is 60.
_SWAPPINESS = 10
# The kernel's default, 0 to 100; more moves pages of running programs more often than it was tuned for.
_PROACTIVENESS = 20
# Share of all memory: what less of it would bring back is not worth a change.
_IDLE_POOL = 0.01
# Bytes: what a local NVMe drive writes in about five seconds. More piles up behind one checkpoint.
_DIRTY = 16 << 30
# Bytes. Version 1 of control groups writes "no limit" as the largest number of whole pages.
_NO_LIMIT = 1 << 60
# PyTorch that reads PYTORCH_ALLOC_CONF; older ones read PYTORCH_CUDA_ALLOC_CONF only.
_NEW_NAME_SINCE = (2, 8)
# PyTorch refuses more threads, and numbers that are no power of two.
_PINNING_THREADS = 128


@probe("memory.no-swap-traffic")
def no_swap_traffic(system: System) -> Outcome:
    areas = _swap_areas(system)
    forbidden = _swap_forbidden(system)
    back = parse_fields(_text_or_none(system, "proc/vmstat") or "").get("pswpin")
    wanted = f"no swap, or at most {gibibytes(_SWAPPED)} of it in use"
    if not areas:
        return passes("no swap", wanted)
    if forbidden:
        return passes("this control group may not swap", wanted)
    size, used = sum(area[1] for area in areas), sum(area[2] for area in areas)
    found = f"{gibibytes(used)} of {gibibytes(size)} swap in use on {few(area[0] for area in areas)}"
    if used <= _SWAPPED:
        return passes(found, wanted)
    return warns(found + (f"; {back:,} pages read back since the start" if back is not None else ""), wanted)


@probe("memory.swappiness")
def swappiness(system: System) -> Outcome:
    value = system.number("proc/sys/vm/swappiness")
    areas = _swap_areas(system)
    wanted = f"1 to {_SWAPPINESS}"
    if not areas:
        return not_applicable("there is no swap")
    if 1 <= value <= _SWAPPINESS:
        return passes(str(value), wanted)
    return warns(
        f"{value}, which swaps only when memory is nearly gone" if value == 0 else str(value), wanted
    )


@probe("memory.overcommit")
def overcommit(system: System) -> Outcome:
    mode = system.number("proc/sys/vm/overcommit_memory")
    committed, limit = system.memory.get("Committed_AS", 0), system.memory.get("CommitLimit", 0)
    wanted = "0 or 1: reservations are granted without being backed"
    if mode != 2:
        return passes(str(mode), wanted)
    return warns(
        f"2 (strict): {gibibytes(committed)} of {gibibytes(limit)} reserved",
        wanted,
        _set("vm.overcommit_memory=0"),
    )


@probe("memory.huge-pages-for-cpu-tensors")
def huge_pages_for_cpu_tensors(system: System) -> Outcome:
    mode = system.chosen(f"{_HUGE_PAGES}/enabled")
    asked = system.environment.get("THP_MEM_ALLOC_ENABLE") == "1"
    wanted = "always, or madvise together with THP_MEM_ALLOC_ENABLE=1"
    ask = "export THP_MEM_ALLOC_ENABLE=1    # PyTorch 2.2 or later"
    if mode == "always" or (mode == "madvise" and asked):
        return passes(f"{mode}{', and PyTorch asks for them' if asked else ''}", wanted)
    if mode == "madvise":
        return warns(
            "madvise, and THP_MEM_ALLOC_ENABLE is not 1: CPU tensors have 4 KiB pages", wanted, [ask]
        )
    return warns(
        f"{mode}: no huge pages for anybody", wanted, [f"echo madvise | sudo tee /{_HUGE_PAGES}/enabled", ask]
    )


@probe("memory.thp-defrag")
def thp_defrag(system: System) -> Outcome:
    mode = system.chosen(f"{_HUGE_PAGES}/enabled")
    defrag = system.chosen(f"{_HUGE_PAGES}/defrag")
    wanted = "defer+madvise, madvise, defer or never"
    if mode == "never":
        return not_applicable("transparent huge pages are off")
    if defrag != "always":
        return passes(defrag, wanted)
    return warns(
        "always: page faults wait for compaction",
        wanted,
        [f"echo defer+madvise | sudo tee /{_HUGE_PAGES}/defrag"],
    )


@probe("memory.compaction")
def compaction(system: System) -> Outcome:
    if system.exists("proc/sys/vm/swappiness") and not system.exists("proc/sys/vm/compaction_proactiveness"):
        return not_applicable("this kernel does not compact ahead (before Linux 5.9, or built without it)")
    value = system.number("proc/sys/vm/compaction_proactiveness")
    wanted = f"at most {_PROACTIVENESS}, the default; 0 where the tail of latencies counts"
    if value <= _PROACTIVENESS:
        return passes(str(value), wanted)
    return warns(f"{value} of 100", wanted, _set("vm.compaction_proactiveness=0"))


@probe("memory.reserved-huge-pages")
def reserved_huge_pages(system: System) -> Outcome:
    memory = system.memory
    if "HugePages_Total" not in memory:
        return not_applicable("this kernel has no pool of static huge pages")
    idle: dict[str, int] = {}
    fix = []
    for name in system.names(_HUGE_POOLS):
        size = re.fullmatch(r"hugepages-(\d+)kB", name)
        if not size:
            continue
        total, free, promised = (
            system.number(f"{_HUGE_POOLS}/{name}/{kind}")
            for kind in ("nr_hugepages", "free_hugepages", "resv_hugepages")
        )
        if free > promised:
            idle[f"{size[1]} kB"] = (free - promised) * int(size[1]) * 1024
            kept = total - free + promised
            fix.append(f"echo {kept} | sudo tee /{_HUGE_POOLS}/{name}/nr_hugepages")
    if not system.names(_HUGE_POOLS):
        free = memory.get("HugePages_Free", 0) - memory.get("HugePages_Rsvd", 0)
        idle["default size"] = free * memory.get("Hugepagesize", 0)
    amount = sum(idle.values())
    wanted = f"less than {_IDLE_POOL:.0%} of memory held back for nobody"
    if amount < _IDLE_POOL * memory.get("MemTotal", 0):
        return passes(f"{gibibytes(amount)} in unused static huge pages", wanted)
    return warns(f"{gibibytes(amount)} in unused static huge pages of {few(idle)}", wanted, fix)


@probe("memory.cgroup-limits")
def cgroup_limits(system: System) -> Outcome:
    group = system.cgroup("memory")
    file, events_file = (
        ("memory.max", "memory.events")
        if group.version == 2
        else ("memory.limit_in_bytes", "memory.oom_control")
    )
    limits: list[tuple[int, str]] = []
    for folder in group.folders:
        at = str(folder.relative_to(system.root))
        text = _text_or_none(system, f"{at}/{file}")
        if text and text.isdigit() and int(text) < _NO_LIMIT:
            limits.append((int(text), at))
    if not limits:
        return not_applicable("no memory limit is set on this control group")
    limit, at = min(limits)
    if limit >= system.memory.get("MemTotal", _NO_LIMIT):
        return not_applicable(f"the limit of {gibibytes(limit)} is all of the machine's memory")
    events = parse_fields(_text_or_none(system, f"{at}/{events_file}") or "")
    if group.version == 1:
        failed = _text_or_none(system, f"{at}/memory.failcnt") or ""
        events |= {"max": int(failed)} if failed.isdigit() else {}
    killed, reached = events.get("oom_kill"), events.get("max")
    if killed is None and reached is None:
        return unknown(f"the limit is {gibibytes(limit)}, and how often it was reached cannot be read")
    wanted = "a limit that was never reached: page cache and /dev/shm count as well"
    if killed:
        return fails(f"{killed:,} processes killed at the limit of {gibibytes(limit)}", wanted)
    if reached:
        return warns(
            f"limit of {gibibytes(limit)} reached {reached:,} times: cache is given up and read again", wanted
        )
    return passes(f"limit of {gibibytes(limit)}, never reached", wanted)


@probe("memory.malloc")
def malloc(system: System) -> Outcome:
    words = re.split(r"[\s:]+", system.environment.get("LD_PRELOAD", ""))
    named = [word for word in words if re.search(r"(jemalloc|tcmalloc|mimalloc)", word)]
    if not named:
        return not_applicable("no other allocator is preloaded; only a profile tells whether one would pay")
    wanted = "a preloaded allocator that is there: the loader passes over a missing one with a message"
    lost = [word for word in named if word.startswith("/") and not system.exists(word.lstrip("/"))]
    if lost:
        return warns(f"LD_PRELOAD names {few(lost)}, which does not exist", wanted, ["unset LD_PRELOAD"])
    if not named[0].startswith("/"):
        return unknown(
            f"LD_PRELOAD names {few(named)} without a path: the loader's search is not repeated here"
        )
    return passes(f"{few(named)} in LD_PRELOAD", wanted)


@probe("memory.dirty-pages")
def dirty_pages(system: System) -> Outcome:
    limit = system.number("proc/sys/vm/dirty_bytes")
    share = system.number("proc/sys/vm/dirty_ratio")
    available = system.memory.get("MemAvailable", system.memory.get("MemTotal"))
    if available is None:
        return unknown("/proc/meminfo does not tell how much memory there is")
    how = "vm.dirty_bytes" if limit else f"{share} % of the memory that is available"
    amount = limit or share * available // 100
    wanted = f"at most {gibibytes(_DIRTY)} of written data waiting in memory"
    found = f"up to {gibibytes(amount)} ({how})"
    return passes(found, wanted) if amount <= _DIRTY else warns(found, wanted)


@probe("memory.expandable-segments")
def expandable_segments(system: System) -> Outcome:
    new, old = (system.environment.get(name) for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    torch = version(system, "torch")
    options = _allocator_options(system)
    wanted = "expandable_segments:True under the name that the installed PyTorch reads, native backend"
    if new is not None and old is not None and new != old:
        return warns(
            "PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF are both set and differ",
            wanted,
            ["unset PYTORCH_CUDA_ALLOC_CONF"],
        )
    if options.get("expandable_segments", "").lower() != "true":
        return not_applicable(
            "not switched on; it pays where allocation sizes change, which only a run shows"
        )
    if options.get("backend") == "cudaMallocAsync":
        return warns(
            "expandable_segments:True beside backend:cudaMallocAsync, which has no segments",
            wanted,
            ["export PYTORCH_ALLOC_CONF=expandable_segments:True"],
        )
    if old is None and torch is not None and torch < _NEW_NAME_SINCE:
        return warns(
            f"PYTORCH_ALLOC_CONF, which PyTorch {torch[0]}.{torch[1]} does not read",
            wanted,
            [f"export PYTORCH_CUDA_ALLOC_CONF={new}"],
        )
    return passes("expandable_segments:True", wanted)


@probe("memory.gc-threshold")
def gc_threshold(system: System) -> Outcome:
    options = _allocator_options(system)
    text = options.get("garbage_collection_threshold")
    wanted = "between 0 and 1, both left out, with a memory fraction and the native backend"
    if text is None:
        return not_applicable("not set; it is for servers whose shapes change")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        return fails(f"{text}: PyTorch refuses it at the first use of CUDA", wanted)
    if options.get("backend") == "cudaMallocAsync":
        return warns(f"{text} beside backend:cudaMallocAsync, which ignores it", wanted)
    if "per_process_memory_fraction" not in options:
        # The allocator collects only under a limit of its own, which a program may also set by a call.
        return warns(
            f"{text} without per_process_memory_fraction: no effect until a program sets a fraction",
            wanted,
            ["torch.cuda.set_per_process_memory_fraction(0.95)    # once, at the start of the program"],
        )
    return passes(text, wanted)


@probe("memory.caching-disabled")
def caching_disabled(system: System) -> Outcome:
    value = system.environment.get("PYTORCH_NO_CUDA_MEMORY_CACHING")
    wanted = "not set"
    if value is None:
        return passes("not set", wanted)
    return fails(f"set to {value!r}; any value counts, 0 as well", wanted)


@probe("memory.pinned-rounding")
def pinned_rounding(system: System) -> Outcome:
    options = {
        name: value for name, value in _allocator_options(system).items() if name.startswith("pinned_")
    }
    wanted = "options for pinned memory that work together"
    if not options:
        return not_applicable("not set; it is for pinned buffers of hundreds of MB, which a program has")
    registers = options.get("pinned_use_cuda_host_register", "").lower() == "true"
    threads = options.get("pinned_num_register_threads")
    if threads is not None:
        count = int(threads) if threads.isdigit() else 0
        if not 1 <= count <= _PINNING_THREADS or count & (count - 1):
            return fails(f"{threads} threads for pinning: PyTorch takes powers of two up to 128", wanted)
        if not registers:
            return warns(
                "pinned_num_register_threads without pinned_use_cuda_host_register:True has no effect", wanted
            )
    elif registers:
        return warns("pinned_use_cuda_host_register:True with one thread, the default", wanted)
    return passes(few(f"{name}:{value}" for name, value in options.items()), wanted)


def _swap_areas(system: System) -> list[tuple[str, int, int]]:
    """Name, size and use in bytes."""
    rows = [line.split() for line in system.lines("proc/swaps")[1:]]
    return [(row[0], int(row[2]) * 1024, int(row[3]) * 1024) for row in rows if len(row) >= 5]


def _swap_forbidden(system: System) -> bool:
    """Whether this control group, or one around it, may not use swap at all."""
    try:
        group = system.cgroup("memory")
    except Unreadable:
        return False
    for folder in group.folders:
        at = str(folder.relative_to(system.root))
        if group.version == 2:
            if _text_or_none(system, f"{at}/memory.swap.max") == "0":
                return True
            continue
        both = _text_or_none(system, f"{at}/memory.memsw.limit_in_bytes")
        alone = _text_or_none(system, f"{at}/memory.limit_in_bytes")
        if both and both == alone and both.isdigit() and int(both) < _NO_LIMIT:
            return True
    return False


def _text_or_none(system: System, path: str) -> str | None:
    try:
        return system.text(path)
    except Unreadable:
        return None


def _allocator_options(system: System) -> dict[str, str]:
    """`a:1,b:[x:2,y:3]` as a dictionary; of the two names the present one."""
    text = system.environment.get("PYTORCH_ALLOC_CONF") or system.environment.get(
        "PYTORCH_CUDA_ALLOC_CONF", ""
    )
    parts = re.findall(r"(\w+)\s*:\s*(\[[^\]]*\]|[^,\[]+)", text)
    return {name: value.strip() for name, value in parts}


def _set(setting: str) -> list[str]:
    return [f"sudo sysctl -w {setting}"]
