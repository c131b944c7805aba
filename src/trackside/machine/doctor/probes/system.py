"""Probes of what lies below the operating system: PCIe, firmware, sleep states, virtualisation, errors."""

from __future__ import annotations

import re

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.gpu_state import Gpu, few, find_gpus
from trackside.machine.doctor.system import System, Unreadable
from trackside.machine.system_files import Unknown, parse_cpu_list, parse_fields

__all__ = ["cpu_flags", "pci_address", "rdma_cards", "tuned_runs"]

_PCI = "sys/bus/pci/devices"
_CPU = "sys/devices/system/cpu"

# Percent. An idle GPU lowers its link's generation on purpose; a busy one has no reason to.
_BUSY = 50
# Display, network, NVMe and accelerator classes: links whose sleep a workload meets.
_CLASSES_THAT_MATTER = ("0x02", "0x03", "0x0108", "0x12")
# Microseconds. C1 wakes in one or two; from here on a wake-up is as long as a kernel launch.
_SLOW_WAKE_US = 10
# Microseconds that tuned's profiles allow through /dev/cpu_dma_latency, which only root can read.
_HELD_AWAKE_US = {
    "latency-performance": 3,
    "network-latency": 3,
    "hpc-compute": 3,
    "accelerator-performance": 99,
}
# The older interrupt controller has eight bits for a CPU's number, and one value means all of them.
_XAPIC_CPUS = 255
# Percent of the time in which something wanted to run; below it steal is lost in the scheduler's own noise.
_STEAL = 2.0
# Ticks of 10 ms. After less than ten busy seconds a share says nothing.
_ENOUGH_TICKS = 1_000
# Corrected PCIe errors an hour at one device; a sound link has a few in its life, a bad one thousands a day.
_CORRECTED_PER_HOUR = 1.0
# Corrected errors a day at one memory controller: what mcelog takes as the threshold for a socket.
_CORRECTED_PER_DAY = 100.0


def pci_address(gpu: Gpu) -> str:
    """As /sys writes it: NVML gives the domain eight digits, the kernel four."""
    bus_id = gpu.get("bus_id")
    if not bus_id:
        raise Unreadable(Unknown(f"bus id of GPU {gpu.get('index', '?')}", "NVML does not tell"))
    domain, _, rest = str(bus_id).lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def cpu_flags(system: System) -> frozenset[str]:
    """Instruction sets and features of the first CPU."""
    for line in system.lines("proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    raise Unreadable(Unknown("/proc/cpuinfo", "no line names the CPU's features"))


def rdma_cards(system: System) -> list[str]:
    """InfiniBand, RoCE and EFA devices."""
    if not system.exists("sys/class"):
        raise Unreadable(Unknown("/sys/class", "not there"))
    return system.names("sys/class/infiniband")


def tuned_runs(system: System) -> bool:
    """Whether tuned's daemon is there: its file outlives it where it was killed."""
    path = "run/tuned/tuned.pid"
    return system.exists(path) and system.exists(f"proc/{system.number(path)}")


def _virtual(system: System) -> bool:
    """Whether a hypervisor runs this kernel. ARM has no flag for it; its servers name it in their tables."""
    if "hypervisor" in cpu_flags(system):
        return True
    try:
        vendor = system.text("sys/class/dmi/id/sys_vendor")
        product = system.text("sys/class/dmi/id/product_name")
    except Unreadable:
        return False
    return vendor in ("QEMU", "KVM") or (vendor == "Amazon EC2" and "metal" not in product)


def _nccl_setting(system: System, name: str) -> str | None:
    """A variable of NCCL's: of the environment, which wins, or of the machine's file."""
    if name in system.environment:
        return system.environment[name]
    if system.exists("etc/nccl.conf"):
        for line in system.lines("etc/nccl.conf"):
            key, equals, value = line.partition("=")
            if equals and key.strip() == name:
                return value.strip()
    return None


def _uptime_hours(system: System) -> float:
    found = re.match(r"[\d.]+", system.text("proc/uptime"))
    if not found:
        raise Unreadable(Unknown("/proc/uptime", "no number"))
    return float(found[0]) / 3600


# -- PCIe ----------------------------------------------------------------------------------------


@probe("system.pcie-link")
def pcie_link(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    bad, at_idle, good, fix = [], [], [], []
    for gpu in gpus:
        name = f"GPU {gpu.get('index')}"
        read = [gpu.get(key) for key in ("pcie_width", "pcie_max_width", "pcie_gen", "pcie_max_gen")]
        if None in read:
            return unknown(f"NVML does not tell the link of {name}")
        width, widest, generation, newest = (int(value or 0) for value in read)
        slow = generation < newest
        if width < widest or (slow and int(gpu.get("utilisation") or 0) >= _BUSY):
            bad.append(f"{name} x{width} of x{widest} at generation {generation} of {newest}")
            fix.append(f"sudo lspci -vv -s {pci_address(gpu)} | grep -E 'LnkCap:|LnkSta:'   # then reseat it")
        elif slow:
            at_idle.append(f"{name} generation {generation} of {newest}")
        else:
            good.append(f"generation {generation} x{width}")
    if bad:
        return warns(few(bad), "all lanes, and under load the newest generation of both ends", fix[:4])
    if at_idle:
        return unknown(f"all lanes are there; {few(at_idle)} while idle, which says nothing: ask under load")
    return passes(f"{', '.join(sorted(set(good)))} on {len(gpus)} GPUs", "all lanes at the newest generation")


@probe("system.iommu-passthrough")
def iommu_passthrough(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if len(gpus) < 2 and not rdma_cards(system):
        return not_applicable("one GPU and no RDMA card: no device copies to another one")
    if _virtual(system):
        return not_applicable("a virtual machine: its host's IOMMU counts")
    if "tsc" not in cpu_flags(system):
        return not_applicable("no x86: Grace wants the IOMMU on and translating")
    wanted = "identity (passthrough) for the GPUs, or the IOMMU off"
    if not system.names("sys/kernel/iommu_groups"):
        if not system.exists("sys/kernel/iommu_groups"):
            raise Unreadable(Unknown("/sys/kernel/iommu_groups", "not there"))
        return passes("the IOMMU is off: no groups", wanted)
    kinds: dict[str, list[str]] = {}
    for gpu in gpus:
        kind = system.text(f"{_PCI}/{pci_address(gpu)}/iommu_group/type")
        kinds.setdefault(kind, []).append(f"GPU {gpu.get('index')}")
    found = "; ".join(f"{kind} for {few(which)}" for kind, which in sorted(kinds.items()))
    return passes(found, wanted) if set(kinds) == {"identity"} else warns(found, wanted)


@probe("system.above-4g-decoding")
def above_4g_decoding(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    small, windows = [], set()
    for gpu in gpus:
        bar1, memory = gpu.get("bar1"), gpu.get("memory")
        if not bar1 or not memory:
            return unknown(f"NVML does not tell the memory window (BAR1) of GPU {gpu.get('index')}")
        window, whole = int(bar1["total"]), int(memory["total"])
        windows.add(f"{window / 2**30:g} GiB for {whole / 2**30:.1f} GiB")
        if window < whole:
            small.append(f"GPU {gpu.get('index')} {window / 2**20:,.0f} MiB for {whole / 2**20:,.0f} MiB")
    wanted = "a window (BAR1) as large as the GPU's memory"
    return warns(few(small), wanted) if small else passes(few(sorted(windows)), wanted)


@probe("system.relaxed-ordering")
def relaxed_ordering(system: System) -> Outcome:
    if not rdma_cards(system):
        return not_applicable("there is no RDMA card")
    value = _nccl_setting(system, "NCCL_IB_PCI_RELAXED_ORDERING")
    wanted = "NCCL_IB_PCI_RELAXED_ORDERING unset, 1 or 2"
    if value == "0":
        return warns("NCCL_IB_PCI_RELAXED_ORDERING=0", wanted, ["unset NCCL_IB_PCI_RELAXED_ORDERING"])
    return passes(f"NCCL may use it (variable {value or 'unset'})", wanted)


@probe("system.aspm")
def aspm(system: System) -> Outcome:
    policy = system.chosen("sys/module/pcie_aspm/parameters/policy")
    states = system.paths(f"{_PCI}/*/link/*_aspm")
    folders = system.paths(f"{_PCI}/*/link")
    asleep = sorted({path.split("/")[4] for path in states if system.text(path) == "1"})
    concerned = [d for d in asleep if system.text(f"{_PCI}/{d}/class").startswith(_CLASSES_THAT_MATTER)]
    wanted = "no sleeping links of GPUs, network cards and NVMe drives"
    fix = ["echo performance | sudo tee /sys/module/pcie_aspm/parameters/policy"]
    if concerned:
        return warns(f"policy {policy}: the links of {few(concerned)} may sleep", wanted, fix)
    if states or policy == "performance":
        return passes(f"policy {policy}, {len(states)} states, none on where it matters", wanted)
    if folders:
        return not_applicable("no PCIe link here offers it")
    if policy.startswith("powersave") or policy.startswith("powersupersave"):
        return warns(f"policy {policy}", wanted, fix)
    return unknown("the firmware decides, and this kernel does not show what (sudo lspci -vv does)")


@probe("system.pcie-aer")
def pcie_errors(system: System) -> Outcome:
    paths = system.paths(f"{_PCI}/*/aer_dev_*")
    counts: dict[str, dict[str, int]] = {}
    for path in paths:
        device, kind = path.split("/")[4:6]
        fields = parse_fields(system.text(path))
        total = next((n for name, n in fields.items() if name.startswith("TOTAL")), sum(fields.values()))
        counts.setdefault(device, {})[kind.removeprefix("aer_dev_")] = total
    if not counts:
        if not system.exists(_PCI):
            raise Unreadable(Unknown(f"/{_PCI}", "not there"))
        return not_applicable(
            "no PCIe device here counts its errors (virtual machine, or firmware keeps them)"
        )
    hours = max(_uptime_hours(system), 1.0)
    bad = []
    for device, kinds in counts.items():
        lost = kinds.get("nonfatal", 0) + kinds.get("fatal", 0)
        corrected = kinds.get("correctable", 0)
        if lost or corrected / hours > _CORRECTED_PER_HOUR:
            bad.append(f"{device} {corrected:,} corrected, {lost:,} uncorrected")
    wanted = f"no uncorrected errors since boot, and at most {_CORRECTED_PER_HOUR:g} corrected an hour"
    if bad:
        return warns(f"{few(bad)} in {hours:,.0f} h", wanted)
    every = sum(kinds.get("correctable", 0) for kinds in counts.values())
    return passes(f"{every:,} corrected, none uncorrected at {len(counts)} devices in {hours:,.0f} h", wanted)


# -- which card is near which GPU ----------------------------------------------------------------


def _bridges(system: System) -> list[tuple[int, int, int]]:
    """Domain, first and last bus number of what lies below each PCIe port."""
    found = []
    for path in system.paths(f"{_PCI}/*/secondary_bus_number"):
        folder = path.rpartition("/")[0]
        first, last = system.number(path), system.number(f"{folder}/subordinate_bus_number")
        if first:
            found.append((int(folder.split("/")[4].partition(":")[0], 16), first, last))
    return found


def _card_addresses(system: System, cards: list[str]) -> dict[str, str]:
    found = {}
    for card in cards:
        for line in system.lines(f"sys/class/infiniband/{card}/device/uevent"):
            name, _, value = line.partition("=")
            if name == "PCI_SLOT_NAME":
                found[card] = value
    return found


def _ports_above(address: str, bridges: list[tuple[int, int, int]]) -> set[tuple[int, int, int]]:
    domain, bus, _ = address.split(":")
    return {b for b in bridges if b[0] == int(domain, 16) and b[1] <= int(bus, 16) <= b[2]}


def _without_a_card(system: System, gpus: tuple[Gpu, ...], cards: list[str]) -> list[str]:
    """GPUs that share no PCIe port, and so no switch, with any card."""
    bridges = _bridges(system)
    over_cards: set[tuple[int, int, int]] = set()
    for address in _card_addresses(system, cards).values():
        over_cards |= _ports_above(address, bridges)
    return [
        f"GPU {gpu.get('index')}" for gpu in gpus if not _ports_above(pci_address(gpu), bridges) & over_cards
    ]


@probe("system.slot-topology")
def slot_topology(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    cards = rdma_cards(system)
    if len(cards) < 2:
        return not_applicable(f"{len(cards)} RDMA cards: there is nothing to pair")
    if _virtual(system):
        return not_applicable("a virtual machine shows a PCIe tree of its own (system.vm-topology)")
    if not _bridges(system):
        return unknown("the kernel does not show which buses lie below which PCIe port")
    far = _without_a_card(system, gpus, cards)
    wanted = "a card under the same PCIe switch for every GPU"
    if far:
        return warns(f"no PCIe switch shared with any of {len(cards)} cards: {few(far)}", wanted)
    return passes(f"each of {len(gpus)} GPUs has one of {len(cards)} cards under its own PCIe port", wanted)


@probe("system.vm-topology")
def vm_topology(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if len(gpus) < 2:
        return not_applicable("fewer than two GPUs")
    cards = rdma_cards(system)
    if not cards:
        return not_applicable("there is no RDMA card")
    if not _virtual(system):
        return not_applicable("no virtual machine: NCCL sees the real PCIe tree")
    default = "/var/run/nvidia-topologyd/virtualTopology.xml"
    named = _nccl_setting(system, "NCCL_TOPO_FILE")
    wanted = "a topology file, or a PCIe tree that puts GPUs and cards together"
    if named or system.exists(default.lstrip("/")):
        path = named or default
        if system.exists(path.lstrip("/")):
            return passes(f"NCCL reads {path}", wanted)
        return warns(f"NCCL_TOPO_FILE={path}, which is not there", wanted)
    far = _without_a_card(system, gpus, cards)
    if far:
        return warns(f"no topology file, and a virtual PCIe tree with no card beside {few(far)}", wanted)
    return passes(f"the virtual PCIe tree puts a card beside each of {len(gpus)} GPUs", wanted)


# -- CPUs ----------------------------------------------------------------------------------------


@probe("system.power-profile")
def power_profile(system: System) -> Outcome:
    """Package limits are the firmware's secret; that it forbids boost or caps the frequency shows."""
    read: dict[str, str] = {}
    for name, path in (
        ("no_turbo", f"{_CPU}/intel_pstate/no_turbo"),
        ("boost", f"{_CPU}/cpufreq/boost"),
        ("bios_limit", f"{_CPU}/cpu0/cpufreq/bios_limit"),
        ("most", f"{_CPU}/cpu0/cpufreq/cpuinfo_max_freq"),
        ("profile", "sys/firmware/acpi/platform_profile"),
    ):
        if system.exists(path):
            read[name] = system.text(path)
    if not system.exists(_CPU):
        raise Unreadable(Unknown(f"/{_CPU}", "not there"))
    if not read.keys() & {"no_turbo", "boost", "profile"}:
        return not_applicable("the kernel sees no boost switch here: the hypervisor or the firmware decides")
    bad: list[str] = []
    good: list[str] = []
    if "no_turbo" in read:
        (bad if read["no_turbo"] == "1" else good).append(
            f"turbo {'off' if read['no_turbo'] == '1' else 'on'}"
        )
    if "boost" in read:
        (bad if read["boost"] == "0" else good).append(f"boost {'off' if read['boost'] == '0' else 'on'}")
    if "profile" in read:
        (good if read["profile"] == "performance" else bad).append(f"platform profile {read['profile']}")
    # Kilohertz; without boost the firmware's limit is the rated frequency, which is no cap.
    if "bios_limit" in read and "most" in read and int(read["bios_limit"]) < int(read["most"]) and not bad:
        bad.append(f"firmware limit {int(read['bios_limit']) // 1000:,} of {int(read['most']) // 1000:,} MHz")
    wanted = "boost on and no limit by the firmware (package power shows in its setup only)"
    fix = []
    if read.get("no_turbo") == "1":
        fix.append(
            f"echo 0 | sudo tee /{_CPU}/intel_pstate/no_turbo   # or Turbo = Enabled in the firmware setup"
        )
    if read.get("boost") == "0":
        fix.append(
            f"echo 1 | sudo tee /{_CPU}/cpufreq/boost   # or Core Performance Boost = Auto in the firmware"
        )
    return warns(", ".join(bad), wanted, fix) if bad else passes(", ".join(good), wanted)


@probe("system.c-states")
def c_states(system: System) -> Outcome:
    folder = f"{_CPU}/cpu0/cpuidle"
    states = [path.rpartition("/")[0] for path in system.paths(f"{folder}/state[0-9]*/latency")]
    if not system.exists(_CPU):
        raise Unreadable(Unknown(f"/{_CPU}", "not there"))
    if not states:
        return not_applicable("the kernel chooses no idle states here (no cpuidle)")
    read = [
        (system.text(f"{s}/name"), system.number(f"{s}/latency"), system.number(f"{s}/disable"))
        for s in states
    ]
    profile = system.text("etc/tuned/active_profile") if tuned_runs(system) else ""
    bound = _HELD_AWAKE_US.get(profile)
    used = [(name, latency) for name, latency, off in read if not off and (bound is None or latency <= bound)]
    deep = [f"{name} ({latency:,} us)" for name, latency in used if latency >= _SLOW_WAKE_US]
    wanted = f"no idle state on that takes {_SLOW_WAKE_US} us or more to leave"
    if deep:
        return warns(f"{few(deep)} on", wanted, [f"sudo cpupower idle-set -D {_SLOW_WAKE_US}"])
    held = f", held by tuned's {profile}" if bound is not None else ""
    return passes(f"at most {max((n for _, n in used), default=0)} us to wake up{held}", wanted)


@probe("system.x2apic")
def x2apic(system: System) -> Outcome:
    online = len(parse_cpu_list(system.text(f"{_CPU}/online")))
    present = len(parse_cpu_list(system.text(f"{_CPU}/present")))
    active = system.text(f"{_CPU}/smt/active") if system.exists(f"{_CPU}/smt/active") else ""
    wanted = "all CPUs up, which beyond 255 takes the IOMMU's interrupt remapping"
    if online > _XAPIC_CPUS:
        return passes(f"{online} CPUs are up", wanted)
    # With multithreading switched off half of the present CPUs are down on purpose.
    if online == _XAPIC_CPUS or (present > _XAPIC_CPUS and active == "1"):
        return warns(f"{online} CPUs are up of {present} that are present", wanted)
    return not_applicable(f"{online} CPUs: the limit of {_XAPIC_CPUS} is far")


@probe("system.steal-time")
def steal_time(system: System) -> Outcome:
    fields = [int(word) for word in system.text("proc/stat").partition("\n")[0].split()[1:]]
    if len(fields) < 8:
        return unknown("/proc/stat does not tell of steal")
    user, nice, kernel, _idle, _waiting, interrupts, soft, steal = fields[:8]
    if not steal and not _virtual(system):
        return not_applicable("no hypervisor that could take CPU time")
    busy = user + nice + kernel + interrupts + soft + steal
    if busy < _ENOUGH_TICKS:
        return unknown("the CPUs have hardly run since boot")
    share = 100 * steal / busy
    found = f"{share:.1f} % of the busy CPU time since boot"
    wanted = f"less than {_STEAL:g} %"
    return warns(found, wanted) if share >= _STEAL else passes(found, wanted)


@probe("system.host-memory-errors")
def host_memory_errors(system: System) -> Outcome:
    counts: dict[str, dict[str, int]] = {}
    for path in system.paths("sys/devices/system/edac/mc/mc[0-9]*/[cu]e_count"):
        controller, kind = path.split("/")[5:7]
        counts.setdefault(controller, {})[kind[:2]] = system.number(path)
    if not counts:
        if _virtual(system):
            return not_applicable("a virtual machine does not see them")
        return unknown("no driver counts memory errors here (/sys/devices/system/edac/mc is empty)")
    days = max(_uptime_hours(system) / 24, 1.0)
    wanted = f"none uncorrected, and at most {_CORRECTED_PER_DAY:g} corrected a day at each controller"
    lost = [f"{mc} {kinds['ue']:,} uncorrected" for mc, kinds in counts.items() if kinds.get("ue")]
    many = [
        f"{mc} {kinds['ce']:,} corrected"
        for mc, kinds in counts.items()
        if kinds.get("ce", 0) / days > _CORRECTED_PER_DAY
    ]
    if lost:
        return fails(few(lost + many), wanted)
    if many:
        return warns(f"{few(many)} in {days:,.0f} days", wanted)
    every = sum(kinds.get("ce", 0) for kinds in counts.values())
    return passes(f"{every:,} corrected, none uncorrected at {len(counts)} controllers", wanted)


@probe("system.peer-access")
def peer_access(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if len(gpus) < 2:
        return not_applicable("there is one GPU")
    ways = ((gpu["index"], peer) for gpu in gpus for peer in gpu.get("peers", ()))
    pairs = [(one, peer) for one, peer in ways if one < peer["index"]]
    wanted = "every pair of GPUs may read each other's memory"
    closed = [
        f"not between GPU {one} and GPU {peer['index']}" + (f" (over {peer['path']})" if peer["path"] else "")
        for one, peer in pairs
        if peer["peer_access"] is False
    ]
    if closed:
        return warns(few(closed), wanted)
    if not pairs or any(peer["peer_access"] is None for _, peer in pairs):
        return unknown("NVML does not say which GPUs may read each other's memory")
    return passes(f"NVML allows it between all {len(pairs)} pairs; a verified copy would prove it", wanted)
