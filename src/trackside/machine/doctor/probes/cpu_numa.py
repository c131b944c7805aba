"""Probes of where a job's threads and host memory sit, and of how many threads meet how many cores."""

from __future__ import annotations

import re

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.gpu_state import Gpu, few, find_gpus
from trackside.machine.doctor.probes.system import cpu_flags, pci_address
from trackside.machine.doctor.system import System, Unreadable
from trackside.machine.system_files import Unknown, parse_cpu_list, parse_fields

_CPU = "sys/devices/system/cpu"
_NODES = "sys/devices/system/node"
_ONE_NODE = "there is one NUMA node"

# Percent of the pages since boot. Boot itself and a full node now and then stay below it.
_MISSED_PAGES = 1.0
# Loader workers, autograd, pinning and NCCL's proxy want a core each; on two they take turns.
_FEW_CORES = 2
# vLLM's API server and its engine core; each GPU's worker comes on top.
_SERVER_CORES = 2
# Megabits a second. Slower cards do not fill a core with interrupts.
_FAST_CARD = 25_000
# Of a card's interrupts; drivers spread the rest over the other node once the near CPUs are used up.
_FAR_INTERRUPTS = 0.5
# Milliseconds: what Intel's OpenMP waits by default. PyTorch's guide suggests 0 or 1.
_LONG_BLOCKTIME = 200
# Values that leave oneDNN's choice free.
_ANY_ISA = ("", "ALL", "DEFAULT")
_ISA_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
# PyTorch's names for its kernels, worst first, and the CPU's flag that the last ones need.
_ATEN_LEVELS = {"default": "", "avx2": "avx2", "avx512": "avx512f"}


def _allowed(system: System) -> tuple[int, ...]:
    """CPUs on which this process may run."""
    for line in system.lines("proc/self/status"):
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return parse_cpu_list(value)
    raise Unreadable(Unknown("/proc/self/status", "no line Cpus_allowed_list"))


def _online(system: System) -> tuple[int, ...]:
    return parse_cpu_list(system.text(f"{_CPU}/online"))


def _nodes(system: System) -> dict[int, frozenset[int]]:
    """NUMA nodes that have CPUs, with these; a GPU's or an expander's memory is a node without."""
    found = {}
    for path in system.paths(f"{_NODES}/node[0-9]*/cpulist"):
        cpus = frozenset(parse_cpu_list(system.text(path)))
        if cpus:
            found[int(path.split("/")[4].removeprefix("node"))] = cpus
    if not found:
        raise Unreadable(Unknown(f"/{_NODES}", "no node with CPUs"))
    return found


def _cores(system: System, cpus: tuple[int, ...]) -> list[frozenset[int]]:
    """Physical cores to which CPUs belong, each with all of its hardware threads."""
    found: list[frozenset[int]] = []
    known: set[int] = set()
    for cpu in cpus:
        if cpu not in known:
            text = system.text(f"{_CPU}/cpu{cpu}/topology/thread_siblings_list")
            siblings = frozenset(parse_cpu_list(text)) | {cpu}
            known |= siblings
            found.append(siblings)
    return found


def _visible_gpus(system: System) -> tuple[Gpu, ...]:
    """GPUs that a program started from here would see."""
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return ()
    chosen = system.environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return gpus
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    by_name = [
        gpu
        for name in names
        for gpu in gpus
        if name == str(gpu.get("index")) or (len(name) > 3 and str(gpu.get("uuid", "")).startswith(name))
    ]
    return tuple(by_name)


def _spans(numbers: frozenset[int] | tuple[int, ...]) -> str:
    """The kernel's list format, short: `0-31,64-95`."""
    ordered = sorted(numbers)
    spans: list[list[int]] = []
    for number in ordered:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in spans]
    return ",".join(texts[:4]) + (",…" if len(texts) > 4 else "")


# -- placement -----------------------------------------------------------------------------------


@probe("cpu-numa.bind-near-gpu")
def bind_near_gpu(system: System) -> Outcome:
    gpus = _visible_gpus(system)
    if not gpus:
        return not_applicable("no GPU is visible here")
    nodes, allowed = _nodes(system), frozenset(_allowed(system))
    if len(nodes) < 2:
        return not_applicable(_ONE_NODE)
    of_gpu = {
        str(gpu.get("index")): system.number(f"sys/bus/pci/devices/{pci_address(gpu)}/numa_node")
        for gpu in gpus
    }
    if min(of_gpu.values()) < 0:
        return not_applicable("the machine does not say on which node its GPUs are")
    mine = sorted(node for node, cpus in nodes.items() if cpus & allowed)
    near = sorted(set(of_gpu.values()))
    on_nodes, of_gpus = (", ".join(map(str, numbers)) for numbers in (mine, near))
    found = f"CPUs {_spans(allowed)} of node {on_nodes}; GPUs on node {of_gpus}"
    wanted = "each rank on the CPUs of its GPU's node"
    if not set(mine) & set(near):
        fix = [f"numactl --cpunodebind={near[0]} --preferred={near[0]} python train.py"]
        return fails(found, wanted, fix)
    if len(mine) == 1:
        return passes(found, wanted)
    return warns(f"not bound: {found}", wanted)


@probe("cpu-numa.host-memory-local")
def host_memory_local(system: System) -> Outcome:
    if len(_nodes(system)) < 2:
        return not_applicable(_ONE_NODE)
    shares = {}
    for path in system.paths(f"{_NODES}/node[0-9]*/numastat"):
        counts = parse_fields(system.text(path))
        pages = counts.get("numa_hit", 0) + counts.get("numa_miss", 0)
        if pages:
            shares[path.split("/")[4]] = 100 * counts.get("numa_miss", 0) / pages
    if not shares:
        return unknown("no node counts its pages (numastat)")
    found = few(f"{node} {share:.2f} %" for node, share in sorted(shares.items(), key=lambda pair: -pair[1]))
    wanted = f"less than {_MISSED_PAGES:g} % of the pages since boot meant for another node"
    return warns(found, wanted) if max(shares.values()) >= _MISSED_PAGES else passes(found, wanted)


@probe("cpu-numa.one-core-affinity")
def one_core_affinity(system: System) -> Outcome:
    allowed, online = _allowed(system), _online(system)
    cores, every = len(_cores(system, allowed)), len(_cores(system, online))
    found = f"{cores} of {every} cores (CPUs {_spans(allowed)})"
    wanted = "all cores that belong to the rank"
    if cores >= every or cores > _FEW_CORES:
        return passes(found, wanted)
    return fails(found, wanted) if cores == 1 else warns(found, wanted)


@probe("cpu-numa.smt-placement")
def smt_placement(system: System) -> Outcome:
    if system.text(f"{_CPU}/smt/active") != "1":
        return not_applicable("one hardware thread a core")
    allowed, online = frozenset(_allowed(system)), frozenset(_online(system))
    cores = _cores(system, tuple(sorted(allowed)))
    split = [core for core in cores if core & online - allowed]
    wanted = "whole cores: both hardware threads, or others take the second one"
    if not split:
        return passes(f"{len(cores)} whole cores", wanted)
    whole = frozenset().union(*cores) & online
    fix = [f"taskset -c {','.join(map(str, sorted(whole)))} python train.py"] if len(whole) <= 64 else []
    pairs = few(f"CPU {_spans(core & allowed)} without {_spans(core & online - allowed)}" for core in split)
    return warns(f"{len(split)} of {len(cores)} cores are shared: {pairs}", wanted, fix)


@probe("cpu-numa.isolated-cores")
def isolated_cores(system: System) -> Outcome:
    isolated = frozenset(parse_cpu_list(system.text(f"{_CPU}/isolated")))
    allowed = frozenset(_allowed(system))
    wanted = "no isolated CPU among those of a process with several threads"
    if not isolated:
        return passes("no CPU is isolated", wanted)
    inside = isolated & allowed
    if not inside:
        return passes(f"CPUs {_spans(isolated)} are isolated, none of them is used here", wanted)
    rest = frozenset(_online(system)) - isolated
    found = f"{len(inside)} of this process's {len(allowed)} CPUs are isolated ({_spans(inside)})"
    return warns(
        found, wanted, [f"taskset -c {_spans(rest)} python train.py"] if "…" not in _spans(rest) else []
    )


@probe("cpu-numa.irq-affinity")
def irq_affinity(system: System) -> Outcome:
    nodes = _nodes(system)
    if len(nodes) < 2:
        return not_applicable(_ONE_NODE)
    judged, far_cards, fix = 0, [], []
    for card in system.names("sys/class/net"):
        folder = f"sys/class/net/{card}"
        try:
            speed, node = system.number(f"{folder}/speed"), system.number(f"{folder}/device/numa_node")
        except Unreadable:
            continue  # Virtual, or no cable: the kernel refuses to tell a speed.
        if speed < _FAST_CARD or node not in nodes:
            continue
        placed = [_handled_on(system, irq) for irq in system.names(f"{folder}/device/msi_irqs")]
        known = [cpus for cpus in placed if cpus]
        if not known:
            continue
        judged += 1
        far = sum(not cpus & nodes[node] for cpus in known)
        if far > _FAR_INTERRUPTS * len(known):
            far_cards.append(f"{card} (node {node}) {far} of {len(known)}")
            fix.append(
                f"sudo set_irq_affinity_bynode.sh {node} {card}   # of mlnx-tools, with irqbalance stopped"
            )
    if not judged:
        return not_applicable(f"no network card of {_FAST_CARD // 1000} Gb/s or more whose node is known")
    wanted = "interrupts on the CPUs of the card's own node"
    if far_cards:
        return warns(f"interrupts on another node: {few(far_cards)}", wanted, fix[:4])
    return passes(f"{judged} fast cards, most interrupts on their own nodes", wanted)


def _handled_on(system: System, irq: str) -> frozenset[int]:
    for name in ("effective_affinity_list", "smp_affinity_list"):
        if system.exists(f"proc/irq/{irq}/{name}"):
            return frozenset(parse_cpu_list(system.text(f"proc/irq/{irq}/{name}")))
    return frozenset()


@probe("cpu-numa.numa-balancing")
def numa_balancing(system: System) -> Outcome:
    if len(_nodes(system)) < 2:
        return not_applicable(_ONE_NODE)
    mode = system.number("proc/sys/kernel/numa_balancing")
    return warns(str(mode), "0 (off)") if mode else passes("0 (off)", "0 (off)")


@probe("cpu-numa.zone-reclaim")
def zone_reclaim(system: System) -> Outcome:
    if len(_nodes(system)) < 2:
        return not_applicable(_ONE_NODE)
    mode = system.number("proc/sys/vm/zone_reclaim_mode")
    return warns(str(mode), "0 (off)") if mode else passes("0 (off)", "0 (off)")


# -- how many threads ----------------------------------------------------------------------------


def _whole_number(text: str | None) -> int | None:
    """The first number of a variable such as `8` or `4,2`."""
    found = re.match(r"\s*(\d+)", text or "")
    return int(found[1]) if found else None


@probe("cpu-numa.omp-threads-per-rank")
def omp_threads(system: System) -> Outcome:
    environment = system.environment
    cores = len(_cores(system, _allowed(system)))
    ranks = max(1, len(_visible_gpus(system)))
    share = max(1, cores // ranks)
    threads, of_mkl = (_whole_number(environment.get(f"{name}_NUM_THREADS")) for name in ("OMP", "MKL"))
    each = f"{cores} cores for {ranks} rank{'s' if ranks > 1 else ''}"
    wanted = f"OMP_NUM_THREADS up to {share} ({each}), MKL_NUM_THREADS unset or the same"
    fix = [f"export OMP_NUM_THREADS={share}; unset MKL_NUM_THREADS"]
    if of_mkl is not None and of_mkl != threads:
        return warns(f"MKL_NUM_THREADS={of_mkl}, OMP_NUM_THREADS={threads or 'unset'}", wanted, fix)
    if threads is not None and threads > share:
        return warns(f"OMP_NUM_THREADS={threads} with {each}", wanted, fix)
    if threads is None and ranks > 1:
        return warns(f"OMP_NUM_THREADS unset with {ranks} GPUs: torchrun makes it 1", wanted, fix)
    return passes(f"OMP_NUM_THREADS={threads}, {each}" if threads else f"unset, {each}", wanted)


@probe("cpu-numa.openmp-spinning")
def openmp_spinning(system: System) -> Outcome:
    environment = system.environment
    threads = _whole_number(environment.get("OMP_NUM_THREADS"))
    policy = environment.get("OMP_WAIT_POLICY", "").upper()
    block = environment.get("KMP_BLOCKTIME", "").lower()
    spins = environment.get("GOMP_SPINCOUNT", "").upper()
    if threads == 1:
        return not_applicable("OMP_NUM_THREADS=1: no pool that could spin")
    wanted = "OMP_WAIT_POLICY unset or PASSIVE, KMP_BLOCKTIME unset, 0 or 1"
    fix = ["export OMP_WAIT_POLICY=PASSIVE", "export KMP_BLOCKTIME=1   # Intel's OpenMP only, milliseconds"]
    if policy == "ACTIVE":
        return warns("OMP_WAIT_POLICY=ACTIVE: idle threads never sleep", wanted, fix)
    if spins.startswith("INFIN"):
        return warns(f"GOMP_SPINCOUNT={spins}: idle threads never sleep", wanted, ["unset GOMP_SPINCOUNT"])
    if block.startswith("infin") or (_whole_number(block) or 0) > _LONG_BLOCKTIME:
        return warns(f"KMP_BLOCKTIME={block}: idle threads spin on", wanted, fix)
    ranks = len(_visible_gpus(system))
    if threads and ranks > 1 and policy != "PASSIVE" and not block:
        return warns(
            f"{ranks} ranks with {threads} threads each, which spin after each operator", wanted, fix
        )
    return passes(
        ", ".join(filter(None, (policy, block and f"{block} ms"))) or "no variable makes them spin", wanted
    )


@probe("cpu-numa.visible-cpus")
def visible_cpus(system: System) -> Outcome:
    online, allowed = len(_online(system)), len(_allowed(system))
    quota = _quota(system)
    usable = min(allowed, quota) if quota else allowed
    told = _whole_number(system.environment.get("PYTHON_CPU_COUNT"))
    wanted = "programs that count the CPUs which they may use"
    if usable >= online:
        return passes(f"all {online} CPUs may be used", wanted)
    why = f"a quota of {quota:g}" if quota and quota < allowed else f"a mask of {allowed}"
    if told is not None and told <= max(1, usable):
        return passes(f"PYTHON_CPU_COUNT={told} with {why} of {online} CPUs", wanted)
    number = max(1, int(usable))
    fix = [
        f"export PYTHON_CPU_COUNT={number}   # Python 3.13 and later",
        f"num_workers = {max(1, number - 1)}",
    ]
    return warns(f"os.cpu_count() says {online}, but {why} holds", wanted, fix)


def _quota(system: System) -> float | None:
    """CPUs' worth of time that the tightest control group above this process allows."""
    found = []
    try:
        folders = [str(folder.relative_to(system.root)) for folder in system.cgroup("cpu").folders]
    except Unreadable:
        return None
    for folder in folders:
        words: list[str] = []
        if system.exists(f"{folder}/cpu.max"):
            words = system.text(f"{folder}/cpu.max").split()
        elif system.exists(f"{folder}/cpu.cfs_quota_us"):
            words = [system.text(f"{folder}/cpu.cfs_{part}_us") for part in ("quota", "period")]
        if len(words) == 2 and words[0].isdigit() and int(words[1]) > 0:
            found.append(int(words[0]) / int(words[1]))
    return min(found, default=None)


@probe("cpu-numa.serving-cores")
def serving_cores(system: System) -> Outcome:
    gpus = _visible_gpus(system)
    if not gpus:
        return not_applicable("no GPU is visible here")
    allowed = _allowed(system)
    cores: float = len(_cores(system, allowed))
    quota = _quota(system)
    # A quota counts hardware threads; of two that share a core, one does a core's work.
    if quota:
        cores = min(cores, quota * cores / len(allowed))
    needed = _SERVER_CORES + len(gpus)
    found = f"{cores:g} physical cores for {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}"
    wanted = f"at least {needed}: one for each GPU and {_SERVER_CORES} for the server"
    return warns(found, wanted) if cores < needed else passes(found, wanted)


@probe("cpu-numa.vector-isa")
def vector_isa(system: System) -> Outcome:
    flags, environment = cpu_flags(system), system.environment
    named = [
        f"{name}={environment[name]}"
        for name in _ISA_VARIABLES
        if environment.get(name, "").upper() not in _ANY_ISA
    ]
    level = environment.get("ATEN_CPU_CAPABILITY", "").lower()
    better = [name for name, flag in _ATEN_LEVELS.items() if flag in flags]
    if (
        level in _ATEN_LEVELS
        and better
        and list(_ATEN_LEVELS).index(level) < list(_ATEN_LEVELS).index(better[-1])
    ):
        named.append(f"ATEN_CPU_CAPABILITY={level}")
    known = ("avx2", "avx512f", "amx_bf16", "asimd", "sve", "sve2")
    has = ", ".join(name for name in known if name in flags) or "no vectors that PyTorch uses"
    wanted = "the CPU's widest vectors, and no variable that caps them"
    if named:
        unset = " ".join(name.partition("=")[0] for name in named)
        return warns(f"{', '.join(named)} on a CPU with {has}", wanted, [f"unset {unset}"])
    if "tsc" in flags and "avx2" not in flags:
        fix = ["QEMU/libvirt: <cpu mode='host-passthrough'/>"] if "hypervisor" in flags else []
        return warns(f"{has} (no AVX2)", wanted, fix)
    return passes(has, wanted)
