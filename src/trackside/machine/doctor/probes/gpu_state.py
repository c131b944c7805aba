"""Probes of the GPUs' state as NVML tells it: clocks, power, heat, memory, links, modes, neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeAlias

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.system import System, Unreadable

__all__ = ["Gpu", "few", "find_gpus", "with_gpus"]

Gpu: TypeAlias = Mapping[str, Any]

_GIB, _MIB = 1 << 30, 1 << 20
# NVML's words on a machine without the driver: the items do not concern it. Any other failure is unknown.
_NO_DRIVER = ("NVML Shared Library Not Found", "Driver Not Loaded")
_NOT_SUPPORTED = "Not Supported"
_MOST_NAMED = 3
"""GPUs or devices named in a finding; the rest are counted."""

# Watts below the default that still count as the default: NVML tells milliwatts, boards round.
_POWER_SLACK_W = 1.0
# Degrees below the hardware's slowdown at which a longer or heavier load would reach it.
_THERMAL_MARGIN_C = 5
# NVML counts the driver's own reserve as used, some hundred MiB to 1 GiB by GPU; what is above twice that
# is somebody's context and data.
_MEMORY_OF_NOBODY = 2 * _GIB
# Some replays while the link trains are normal; a link that has more has sent packets again under load.
_PCIE_REPLAYS = 100
# Registrations fail when the window is full; this much leaves room for the next job's buffers.
_BAR1_SHARE = 0.8

# NVML's enumerations, which its ABI keeps fixed.
_COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
_PROHIBITED = 2
_PASSTHROUGH, _VGPU = 1, 2
_RECOVERY_ACTIONS = {
    0: "None",
    1: "GPU reset",
    2: "node reboot",
    3: "drain peer-to-peer traffic",
    4: "drain and reset",
    5: "recover the IMEX domain",
    6: "bus reset",
    7: "system reboot",
}
_RESETS, _REBOOTS = (1, 4, 6), (2, 7)


def few(words: Iterable[str], most: int = _MOST_NAMED) -> str:
    """The first of them, and how many more there are."""
    words = list(words)
    rest = len(words) - most
    return "; ".join(words[:most]) + (f"; and {rest} more" if rest > 0 else "")


def find_gpus(system: System) -> tuple[Gpu, ...] | Outcome:
    """The GPUs, or why the question does not arise here.

    Raises:
        Unreadable: NVML is there and does not answer.
    """
    try:
        found = system.gpus
    except Unreadable as error:
        if error.unknown.why.endswith(_NO_DRIVER):
            return not_applicable("no NVIDIA driver here")
        raise
    return found or not_applicable("the driver sees no GPU")


def with_gpus(look: Callable[[tuple[Gpu, ...]], Outcome]) -> Callable[[System], Outcome]:
    """A probe that is asked about GPUs alone, and only where there are some."""

    @wraps(look)
    def ask(system: System) -> Outcome:
        found = find_gpus(system)
        return found if isinstance(found, Outcome) else look(found)

    return ask


def _ids(gpus: Iterable[Gpu]) -> str:
    """As nvidia-smi's -i takes them."""
    return ",".join(str(gpu["index"]) for gpu in gpus)


def _missing(gpu: Gpu, field: str) -> str:
    reasons = gpu.get("unknown", {})
    return str(reasons.get(field) or reasons.get("everything") or "the driver does not tell")


def _unread(gpus: Sequence[Gpu], field: str) -> Outcome | None:
    """What to say where some GPU did not tell a field, and none that did is at fault."""
    silent = [gpu for gpu in gpus if gpu.get(field) is None]
    if not silent:
        return None
    why = few(f"GPU {gpu['index']}: {_missing(gpu, field)}" for gpu in silent)
    if len(silent) == len(gpus) and all(_missing(gpu, field) == _NOT_SUPPORTED for gpu in silent):
        return not_applicable(f"these GPUs do not have it ({why})")
    return unknown(f"{field.replace('_', ' ')} of {why}")


def _judge(
    gpus: Sequence[Gpu],
    field: str,
    fault: Callable[[Any], str | None],
    wanted: str,
    good: Callable[[list[Any]], str],
    fix: Callable[[str], Iterable[str]] = lambda ids: (),
    verdict: Callable[[str, str, Iterable[str]], Outcome] = warns,
) -> Outcome:
    """One field of every GPU: what is wrong with it where something is, else what is good about all."""
    found = [(gpu, text) for gpu in gpus if gpu.get(field) is not None and (text := fault(gpu[field]))]
    if found:
        named = few(f"GPU {gpu['index']}: {text}" for gpu, text in found)
        return verdict(named, wanted, fix(_ids(gpu for gpu, _ in found)))
    return _unread(gpus, field) or passes(good([gpu[field] for gpu in gpus]), wanted)


def _count(values: Sequence[Any]) -> str:
    return "1 GPU" if len(values) == 1 else f"{len(values)} GPUs"


def _range(values: Sequence[float], unit: str) -> str:
    low, high = min(values), max(values)
    return f"{low:g} {unit}" if low == high else f"{low:g} to {high:g} {unit}"


def _is_idle(gpu: Gpu) -> bool:
    return "GpuIdle" in gpu.get("reasons", ())


def _is_at_top(gpu: Gpu) -> bool:
    now, most = gpu.get("sm_mhz"), gpu.get("sm_max_mhz")
    return now is not None and most is not None and now >= most


@probe("gpu-state.persistence-mode")
@with_gpus
def persistence_mode(gpus: tuple[Gpu, ...]) -> Outcome:
    return _judge(
        gpus,
        "persistence",
        lambda on: None if on else "off",
        "on for every GPU",
        lambda all_: f"on for {_count(all_)}",
        lambda ids: (
            "sudo systemctl enable --now nvidia-persistenced",
            f"sudo nvidia-smi -i {ids} -pm 1   # until the next boot",
        ),
    )


@probe("gpu-state.clock-event-reasons")
@with_gpus
def clock_event_reasons(gpus: tuple[Gpu, ...]) -> Outcome:
    # Power cap and idle are normal; heat, brake and clock settings have probes of their own.
    elsewhere = {"GpuIdle", "SwPowerCap", "ApplicationsClocks", "SwThermal", "HwThermal", "HwPowerBrake"}
    wanted = "no reason but idle or the power cap"

    def fault(reasons: list[str]) -> str | None:
        others = [reason for reason in reasons if reason not in elsewhere]
        return f"held down by {', '.join(others)}" if others else None

    found = _judge(
        gpus,
        "reasons",
        fault,
        wanted,
        lambda all_: ", ".join(sorted({reason for reasons in all_ for reason in reasons})) or "none",
        lambda ids: (f"nvidia-smi -i {ids} -q -d PERFORMANCE",),
    )
    if found.status == "pass" and all(_is_idle(gpu) for gpu in gpus):
        return unknown("every GPU is idle, and a reason shows only under load: ask again while a job runs")
    return found


@probe("gpu-state.power-limit")
@with_gpus
def power_limit(gpus: tuple[Gpu, ...]) -> Outcome:
    wanted = "the board's default"
    low = []
    for gpu in gpus:
        default, limits = (
            gpu.get("power_default_w"),
            (gpu.get("power_limit_w"), gpu.get("enforced_limit_w")),
        )
        told = [limit for limit in limits if limit is not None]
        if default is not None and told and min(told) < default - _POWER_SLACK_W:
            low.append((gpu, min(told), default))
    if low:
        return warns(
            few(f"GPU {gpu['index']}: {limit:g} W of {default:g} W" for gpu, limit, default in low),
            wanted,
            [f"sudo nvidia-smi -i {gpu['index']} -pl {default:g}" for gpu, _, default in low],
        )
    missing = _unread(gpus, "power_limit_w") or _unread(gpus, "power_default_w")
    return missing or passes(_range([gpu["power_limit_w"] for gpu in gpus], "W"), wanted)


@probe("gpu-state.power-brake")
@with_gpus
def power_brake(gpus: tuple[Gpu, ...]) -> Outcome:
    return _judge(
        gpus,
        "reasons",
        lambda reasons: "the power brake is active" if "HwPowerBrake" in reasons else None,
        "not active",
        lambda all_: f"not active on {_count(all_)} now",
        verdict=fails,
    )


@probe("gpu-state.temperature")
@with_gpus
def temperature(gpus: tuple[Gpu, ...]) -> Outcome:
    wanted = f"no thermal slowdown, and more than {_THERMAL_MARGIN_C} °C below the hardware's"
    slowed, close = [], []
    for gpu in gpus:
        now, limit = gpu.get("temperature"), gpu.get("slowdown_at")
        named = f"GPU {gpu['index']}" + (f": {now} °C" if now is not None else "")
        hot = [reason for reason in ("SwThermal", "HwThermal") if reason in gpu.get("reasons", ())]
        if hot:
            slowed.append(f"{named}, slowed down by heat ({', '.join(hot)})")
        # From Ada on the threshold may be missing: then the reasons alone decide.
        elif now is not None and limit and now > limit - _THERMAL_MARGIN_C:
            close.append(f"{named}, slows down at {limit} °C")
    if slowed:
        return fails(few(slowed), wanted)
    if close:
        return warns(few(close), wanted)
    missing = _unread(gpus, "temperature") or _unread(gpus, "reasons")
    return missing or passes(_range([gpu["temperature"] for gpu in gpus], "°C"), wanted)


@probe("gpu-state.locked-clocks")
@with_gpus
def locked_clocks(gpus: tuple[Gpu, ...]) -> Outcome:
    wanted = "no clock setting below the default"
    held = []
    for gpu in gpus:
        set_to, default = gpu.get("sm_set_mhz"), gpu.get("sm_default_mhz")
        if set_to is not None and default is not None and set_to < default:
            held.append((gpu, f"application clock {set_to} of {default} MHz"))
        elif "ApplicationsClocks" in gpu.get("reasons", ()) and not _is_at_top(gpu):
            held.append((gpu, f"a clock setting holds it at {gpu.get('sm_mhz', '?')} MHz"))
    if held:
        ids = _ids(gpu for gpu, _ in held)
        return warns(
            few(f"GPU {gpu['index']}: {text}" for gpu, text in held),
            wanted,
            [f"sudo nvidia-smi -i {ids} -rgc", f"sudo nvidia-smi -i {ids} -rac"],
        )
    missing = _unread(gpus, "reasons")
    if missing:
        return missing
    if all(_is_idle(gpu) for gpu in gpus):
        return unknown("every GPU is idle, and a lock shows only under load: ask again while a job runs")
    return passes(f"no setting holds the clock of {_count(gpus)}", wanted)


@probe("gpu-state.memory-clock")
@with_gpus
def memory_clock(gpus: tuple[Gpu, ...]) -> Outcome:
    wanted = "the maximum under load"
    slow = [
        gpu
        for gpu in gpus
        if gpu.get("memory_mhz") is not None
        and gpu.get("memory_max_mhz") is not None
        and gpu["memory_mhz"] < gpu["memory_max_mhz"]
    ]
    # GDDR memory slows down when the GPU idles; that says nothing.
    busy = [gpu for gpu in slow if "reasons" in gpu and not _is_idle(gpu)]
    if busy:
        ids = _ids(busy)
        return warns(
            few(f"GPU {gpu['index']}: {gpu['memory_mhz']} of {gpu['memory_max_mhz']} MHz" for gpu in busy),
            wanted,
            [f"sudo nvidia-smi -i {ids} -rmc"],
        )
    missing = _unread(gpus, "memory_mhz") or _unread(gpus, "memory_max_mhz")
    if missing:
        return missing
    if slow:
        return unknown(
            f"GPU {_ids(slow)} below the maximum, but not known to be busy: ask again while a job runs"
        )
    return passes(_range([gpu["memory_mhz"] for gpu in gpus], "MHz"), wanted)


@probe("gpu-state.other-processes")
@with_gpus
def other_processes(gpus: tuple[Gpu, ...]) -> Outcome:
    wanted = (
        f"no process, 0 % in use and less than {_MEMORY_OF_NOBODY / _GIB:g} GiB taken before a job starts"
    )
    taken = []
    for gpu in gpus:
        processes = gpu.get("processes") or []
        used, busy = (gpu.get("memory") or {}).get("used", 0), gpu.get("utilisation") or 0
        if processes:
            names = few(
                (f"{one['pid']} {(one.get('name') or '?').rpartition('/')[2]}" for one in processes), 2
            )
            taken.append(f"GPU {gpu['index']}: {len(processes)} running ({names}), {used / _GIB:.1f} GiB")
        elif used > _MEMORY_OF_NOBODY or busy:
            taken.append(f"GPU {gpu['index']}: {used / _GIB:.1f} GiB and {busy} % in use by nobody visible")
    if taken:
        return warns(few(taken), wanted)
    missing = _unread(gpus, "processes") or _unread(gpus, "memory")
    most = max((gpu["memory"]["used"] for gpu in gpus if gpu.get("memory")), default=0)
    return missing or passes(f"nobody on {_count(gpus)}, at most {most / _MIB:,.0f} MiB taken", wanted)


@probe("gpu-state.compute-mode")
@with_gpus
def compute_mode(gpus: tuple[Gpu, ...]) -> Outcome:
    return _judge(
        gpus,
        "compute_mode",
        lambda mode: _COMPUTE_MODES[mode] if mode == _PROHIBITED else None,
        "Default, or Exclusive_Process where one job owns the GPU",
        lambda all_: ", ".join(sorted({_COMPUTE_MODES.get(mode, str(mode)) for mode in all_})),
        lambda ids: (f"sudo nvidia-smi -i {ids} -c DEFAULT",),
        fails,
    )


@probe("gpu-state.mps")
@with_gpus
def mps(gpus: tuple[Gpu, ...]) -> Outcome:
    wanted = "MPS where several processes share a GPU"
    shared = [gpu for gpu in gpus if len(gpu.get("processes") or []) > 1]
    if not shared:
        missing = _unread(gpus, "processes")
        return missing or not_applicable("no GPU has more than one process now")
    without = [
        gpu for gpu in shared if not any("cuda-mps" in (one.get("name") or "") for one in gpu["processes"])
    ]
    if not without:
        return passes(f"an MPS server on GPU {_ids(shared)}", wanted)
    if all(one.get("name") is None for gpu in without for one in gpu["processes"]):
        return unknown(f"names of the processes on GPU {_ids(without)}: the driver does not tell")
    return warns(
        few(f"GPU {gpu['index']}: {len(gpu['processes'])} processes take turns" for gpu in without),
        wanted,
        [
            f"sudo nvidia-smi -i {_ids(without)} -c EXCLUSIVE_PROCESS",
            f"CUDA_VISIBLE_DEVICES={_ids(without)} nvidia-cuda-mps-control -d   # before the processes start",
        ],
    )


@probe("gpu-state.mig")
@with_gpus
def mig(gpus: tuple[Gpu, ...]) -> Outcome:
    def fault(mode: Mapping[str, bool]) -> str | None:
        if mode["now"]:
            return "in instances" if mode["next"] else "in instances until its next reset"
        return "in instances from its next reset on" if mode["next"] else None

    return _judge(
        gpus,
        "mig",
        fault,
        "off, now and after a reset",
        lambda all_: f"off on {_count(all_)}",
        lambda ids: (
            f"sudo nvidia-smi mig -dci -i {ids} && sudo nvidia-smi mig -dgi -i {ids}",
            f"sudo nvidia-smi -i {ids} -mig 0",
            f"sudo nvidia-smi --gpu-reset -i {ids}   # where it stays pending",
        ),
    )


@probe("gpu-state.remapped-rows")
@with_gpus
def remapped_rows(gpus: tuple[Gpu, ...]) -> Outcome:
    wanted = "no pending and no failed remap"
    told = [gpu for gpu in gpus if gpu.get("remapped_rows")]
    failed = [gpu for gpu in told if gpu["remapped_rows"]["failed"]]
    pending = [gpu for gpu in told if gpu["remapped_rows"]["pending"]]
    if failed:
        report = ["sudo nvidia-bug-report.sh   # for the ticket: the board should be exchanged"]
        return fails(f"a remap failed on GPU {_ids(failed)}", wanted, report)
    if pending:
        reset = f"sudo nvidia-smi --gpu-reset -i {_ids(pending)}   # with no process on it"
        return warns(f"a remap is pending on GPU {_ids(pending)}", wanted, [reset])
    rows = sum(gpu["remapped_rows"]["corrected"] + gpu["remapped_rows"]["uncorrected"] for gpu in told)
    return _unread(gpus, "remapped_rows") or passes(f"{rows} rows remapped, none pending or failed", wanted)


@probe("gpu-state.ecc-errors")
@with_gpus
def ecc_errors(gpus: tuple[Gpu, ...]) -> Outcome:
    wanted = "ECC on, and no uncorrected error since the driver was loaded"
    off = [gpu for gpu in gpus if gpu.get("ecc") and not gpu["ecc"]["now"]]
    broken = [gpu for gpu in gpus if gpu.get("ecc_uncorrected")]
    if broken:
        return warns(
            few(
                f"GPU {gpu['index']}: {gpu['ecc_uncorrected']} uncorrected since the driver was loaded, "
                f"{gpu.get('ecc_uncorrected_ever', '?')} ever"
                for gpu in broken
            ),
            wanted,
            [f"nvidia-smi -i {_ids(broken)} -q -d ECC,ROW_REMAPPER"],
        )
    if off:
        ids = _ids(off)
        return warns(
            f"ECC is off on GPU {ids}",
            wanted,
            [f"sudo nvidia-smi -i {ids} -e 1 && sudo nvidia-smi --gpu-reset -i {ids}"],
        )
    missing = _unread(gpus, "ecc") or _unread(gpus, "ecc_uncorrected")
    if missing:
        return missing
    ever = sum(gpu.get("ecc_uncorrected_ever") or 0 for gpu in gpus)
    return passes(f"on, 0 uncorrected errors since the driver was loaded, {ever} ever", wanted)


@probe("gpu-state.recovery-action")
@with_gpus
def recovery_action(gpus: tuple[Gpu, ...]) -> Outcome:
    asked = {gpu["recovery_action"] for gpu in gpus if gpu.get("recovery_action")}

    def fix(ids: str) -> tuple[str, ...]:
        if asked & set(_REBOOTS):
            return ("sudo reboot",)
        reset = (f"sudo nvidia-smi -r -i {ids}   # with no process on it",)
        return reset if asked <= set(_RESETS) else ()

    def name(action: int) -> str:
        return _RECOVERY_ACTIONS.get(action, f"action {action}")

    return _judge(
        gpus,
        "recovery_action",
        lambda action: f"the driver asks for: {name(action)}" if action else None,
        "None",
        lambda all_: f"None for {_count(all_)}",
        fix,
        fails,
    )


@probe("gpu-state.nvlink-links")
@with_gpus
def nvlink_links(gpus: tuple[Gpu, ...]) -> Outcome:
    if len(gpus) < 2:
        return not_applicable("one GPU has no peer")
    if not any(gpu.get("links") for gpu in gpus):
        return not_applicable("these GPUs have no NVLink")
    active = {gpu["index"]: sum(link["active"] for link in gpu.get("links") or []) for gpu in gpus}
    most = max(active.values())
    wanted = "every link of every GPU active"
    if not most:
        return warns(f"no NVLink is active on {_count(gpus)}", wanted)
    dead = [
        f"GPU {gpu['index']}: {active[gpu['index']]} of {max(len(gpu.get('links') or []), most)}"
        for gpu in gpus
        if active[gpu["index"]] < max(len(gpu.get("links") or []), most)
    ]
    if not dead:
        return passes(f"{most} links active on each of {_count(gpus)}", wanted)
    # Boards whose bridges take some of the links have the same number on all: that is how they are built.
    return fails(few(dead), wanted) if len(set(active.values())) > 1 else warns(few(dead), wanted)


@probe("gpu-state.nvlink-errors")
@with_gpus
def nvlink_errors(gpus: tuple[Gpu, ...]) -> Outcome:
    kinds = ("replay", "recovery", "crc_flit", "crc_data")
    links = [(gpu, link) for gpu in gpus for link in gpu.get("links") or [] if link["active"]]
    if not links:
        return not_applicable("no NVLink is active")
    wanted = "no replay, recovery or CRC error"
    bad = [
        f"GPU {gpu['index']} link {link['link']}: "
        + ", ".join(f"{link[kind]:,} {kind.replace('_', ' ')}" for kind in kinds if link.get(kind))
        for gpu, link in links
        if any(link.get(kind) for kind in kinds)
    ]
    if bad:
        return warns(
            few(bad), wanted, ["nvidia-smi nvlink -e   # again after a loaded minute: growth counts"]
        )
    if not all(any(kind in link for kind in kinds) for _, link in links):
        return unknown("the driver does not tell the error counters of every link")
    return passes(f"none on {len(links)} links", wanted)


@probe("gpu-state.pcie-replay")
@with_gpus
def pcie_replay(gpus: tuple[Gpu, ...]) -> Outcome:
    return _judge(
        gpus,
        "pcie_replays",
        lambda count: f"{count:,} packets sent again" if count > _PCIE_REPLAYS else None,
        f"at most {_PCIE_REPLAYS} since the last reset, and no growth under load",
        lambda all_: f"at most {max(all_):,} packets sent again",
        lambda ids: (f"nvidia-smi -i {ids} -q | grep -E 'Replays Since Reset|Replay Number Rollovers'",),
    )


@probe("gpu-state.bar1-use")
@with_gpus
def bar1_use(gpus: tuple[Gpu, ...]) -> Outcome:
    def size(window: Mapping[str, int]) -> str:
        return f"{window['used'] / _MIB:,.0f} of {window['total'] / _MIB:,.0f} MiB"

    return _judge(
        gpus,
        "bar1",
        lambda window: size(window) if window["used"] > _BAR1_SHARE * window["total"] else None,
        f"at most {_BAR1_SHARE:.0%} of the window in use",
        lambda all_: f"at most {size(max(all_, key=lambda window: window['used']))}",
    )


@probe("gpu-state.confidential-computing")
@with_gpus
def confidential_computing(gpus: tuple[Gpu, ...]) -> Outcome:
    if all(gpu.get("confidential") is None for gpu in gpus):
        return not_applicable("these GPUs or their driver know no confidential computing")
    return _judge(
        gpus,
        "confidential",
        lambda on: "on: transfers are encrypted, and counters are closed" if on else None,
        "off, unless it was rented for",
        lambda all_: "off",
    )


@probe("gpu-state.virtual-gpu")
@with_gpus
def virtual_gpu(gpus: tuple[Gpu, ...]) -> Outcome:
    if all((gpu.get("virtualisation") or 0) > _VGPU for gpu in gpus):
        return not_applicable("this is the hypervisor's host, which deals out the GPUs")
    return _judge(
        gpus,
        "virtualisation",
        lambda mode: "a share of a GPU (vGPU)" if mode == _VGPU else None,
        "bare metal or passed through",
        lambda all_: "passed through" if _PASSTHROUGH in all_ else "bare metal",
    )
