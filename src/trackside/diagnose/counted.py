"""Rules about the program's own kernels, by what the hardware counted in them.

How kernels of torch and of the vendor's libraries are written nobody who reads a finding can change: of those
only what they are given counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from trackside.diagnose.evidence import Evidence
from trackside.diagnose.on_device import busiest_line, in_window
from trackside.diagnose.rule import Confidence, Draft, rule
from trackside.diagnose.wording import percent
from trackside.trace.edits import Edit, Scale
from trackside.trace.links import launch_of
from trackside.trace.model import Ints, Kind

__all__ = ["is_library_kernel"]

# Of the step; below it no change inside a kernel is worth the work.
_LEAST_SHARE = 0.02

# As libraries name their kernels: torch, CUTLASS and cuBLAS, cuDNN, NCCL, CUB, and what Inductor writes.
_LIBRARY = re.compile(
    r"^(void )?(at::|at_cuda|cutlass|cublas|gemmk1|gemv|splitkreduce|cudnn|nccl|cub::|thrust::|flash_|fmha"
    r"|pytorch_|sm\d+_|ampere_|volta_|turing_|hopper_|nvjet|xmma|c10|magma|triton_(poi|red|per|for|tem|mm|spl)_"
    r"|(un)?rolled_elementwise|vectorized_elementwise|elementwise_kernel|reduce_kernel|memset|memcpy)",
    re.IGNORECASE,
)

_STALLS = {
    "long_scoreboard": ("loads from memory", "load ahead (num_stages, cp.async, TMA), or run more warps"),
    "short_scoreboard": (
        "shared memory and special functions",
        "keep values in registers; fewer exp and rsqrt",
    ),
    "barrier": ("barriers", "let warps do equal work, or use smaller blocks"),
    "math_pipe_throttle": ("a busy arithmetic pipe", "use tensor cores, or cheaper arithmetic"),
    "mio_throttle": ("the queue of shared memory", "wider accesses to shared memory, fewer shuffles"),
    "lg_throttle": ("the queue of loads", "wider loads: each thread takes 16 bytes at once"),
    "gmma": ("tensor cores", "more of the product in flight: larger tiles, more stages"),
    "no_instruction": ("instructions", "unroll less, so that the loop stays in the instruction cache"),
}
"""Why warps wait, in words, and what helps."""


def is_library_kernel(name: str) -> bool:
    """Whether a kernel comes with torch or a library, by how those name theirs."""
    return _LIBRARY.match(name) is not None


@dataclass(frozen=True)
class _Counted:
    """One kernel of the program's with its counters."""

    name: str
    rows: Ints
    share: float
    """Of the step."""
    counters: Mapping[str, float]

    def __getitem__(self, counter: str) -> float:
        """NaN where the chip has no such counter: no comparison with it holds."""
        return self.counters.get(counter, float("nan"))

    def of_peak(self, unit: str) -> float:
        """How busy a unit is, 0 to 1."""
        names = [name for name in self.counters if name.startswith(f"{unit}.avg.pct_of_peak")]
        return self.counters[names[0]] / 100 if names else float("nan")

    @property
    def memory_busy(self) -> float:
        """How busy the busiest part of the memory is."""
        units = ("dram__throughput", "lts__throughput", "l1tex__throughput")
        return float(np.nanmax([0.0, *(self.of_peak(unit) for unit in units)]))

    @property
    def moved_bytes(self) -> float:
        """To and from the device's memory, in one run."""
        return self["dram__bytes_read.sum"] + self["dram__bytes_write.sum"]


def _kernels(evidence: Evidence, libraries: bool = False) -> Iterator[_Counted]:
    """The program's own kernels that matter and were counted; with `libraries` all such."""
    rows = in_window(evidence, Kind.KERNEL)
    for name, counters in evidence.counters.items():
        if (is_library_kernel(name) and not libraries) or name not in evidence.trace.names:
            continue
        mine = rows[evidence.trace.name[rows] == evidence.trace.names.index(name)]
        share = float(evidence.trace.duration[mine].sum()) / len(evidence.steps) / evidence.step_ns
        if share >= _LEAST_SHARE:
            yield _Counted(name, mine, share, counters)


def _draft(
    evidence: Evidence,
    kernel: _Counted,
    title: str,
    told: list[str],
    fix: str,
    saved: tuple[float, float, float],
    confidence: Confidence = "low",
) -> Draft:
    """A finding about one kernel, with the share of its time that the change saves: least, estimate, most."""
    calls = launch_of(evidence.trace, kernel.rows)
    tasks = evidence.traced.tasks_of(kernel.rows)

    def scaled(share: float) -> list[Edit]:
        return [Scale(tasks, 1 - min(0.95, max(0.0, share)))]

    low, mid, high = saved
    return Draft(
        title=title,
        line=busiest_line(evidence, calls[calls >= 0]),
        evidence=[f"Kernel {kernel.name[:80]} takes {percent(kernel.share)} of the step.", *told],
        fix=fix,
        edits=scaled(mid),
        least=scaled(low),
        most=scaled(high),
        confidence=confidence,
    )


@rule("uncoalesced-access", "kernel", item="kernels.coalescing", on="device")
def uncoalesced_access(evidence: Evidence) -> Iterator[Draft]:
    """Neighbouring threads touch memory far apart: most of each sector that is fetched is not used."""
    for kernel in _kernels(evidence):
        used = {
            way: kernel[f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.pct"] / 100
            for way, op in (("loads", "ld"), ("stores", "st"))
        }
        poor = {way: share for way, share in used.items() if 0 < share < 0.8}
        if not poor or kernel.memory_busy < 0.3:
            continue
        way, share = min(poor.items(), key=lambda one: one[1])
        # What is fetched for nothing costs as far as memory is what the kernel waits for.
        waste = (1 - share) * kernel.memory_busy
        sectors = kernel["l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"]
        told = [f"Its {way} use {percent(share)} of the bytes that they fetch (80 % or more is usual)."]
        if sectors > 4:
            told.append(f"A load touches {sectors:.0f} sectors of 32 bytes; 4 suffice for 32-bit values.")
        told.append(f"Memory is {percent(kernel.memory_busy)} busy.")
        yield _draft(
            evidence,
            kernel,
            "Neighbouring threads of a kernel access memory far apart",
            told,
            "Let neighbouring threads access neighbouring addresses: swap the loop's or the grid's axes, "
            "transpose the input once, or go through shared memory.",
            (waste / 2, waste, min(0.95, 1.5 * waste)),
            "medium" if share < 0.5 else "low",
        )


@rule("register-spills", "kernel", item="kernels.spills", on="device")
def register_spills(evidence: Evidence) -> Iterator[Draft]:
    """Registers do not suffice: values go to memory and back."""
    for kernel in _kernels(evidence):
        spilled = (
            kernel["smsp__inst_executed_op_local_ld.sum"] + kernel["smsp__inst_executed_op_local_st.sum"]
        ) / max(1.0, kernel["smsp__inst_executed.sum"])
        if not spilled > 0.01:
            continue
        registers = kernel["launch__registers_per_thread"]
        # Each is an instruction more, and a wait for the first cache.
        yield _draft(
            evidence,
            kernel,
            "A kernel keeps values in memory that should be in registers",
            [
                f"{percent(spilled)} of its instructions load or store spilled values, at "
                f"{registers:.0f} registers a thread (255 is the most)."
            ],
            "Smaller tiles or more warps for the same tile (num_warps in Triton), so that each thread holds "
            "less; in CUDA look at __launch_bounds__ and -Xptxas -v.",
            (spilled / 2, min(0.5, 2 * spilled), min(0.8, 5 * spilled)),
        )


@rule("bank-conflicts", "kernel", item="kernels.bank-conflicts", on="device")
def bank_conflicts(evidence: Evidence) -> Iterator[Draft]:
    """Threads of a warp want the same bank of shared memory, one after the other."""
    for kernel in _kernels(evidence):
        share = kernel["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] / max(
            1.0, kernel["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"]
        )
        busy = kernel.of_peak("l1tex__throughput")
        if not (share >= 0.1 and busy > 0.2):
            continue
        cost = min(1.0, share) * busy
        yield _draft(
            evidence,
            kernel,
            "Threads of a kernel wait for each other at shared memory",
            [
                f"{percent(min(1.0, share))} of the passes over shared memory are repeats for bank "
                f"conflicts; the first cache, which serves it, is {percent(busy)} busy."
            ],
            "Pad rows in shared memory by one element, or swizzle the index (Triton does so for tl.dot).",
            (cost / 3, 2 * cost / 3, cost),
        )


@rule("latency-bound-kernel", "kernel", item="kernels.triton-warps-stages", on="device")
def latency_bound_kernel(evidence: Evidence) -> Iterator[Draft]:
    """Neither arithmetic nor memory is busy: warps wait."""
    for kernel in _kernels(evidence):
        arithmetic, memory = kernel.of_peak("sm__throughput"), kernel.memory_busy
        issued = kernel["smsp__issue_active.avg.per_cycle_active"]
        if not (arithmetic < 0.6 and memory < 0.6 and issued < 0.6):
            continue
        waits = {why: kernel[f"smsp__warp_issue_stalled_{why}_per_warp_active.pct"] / 100 for why in _STALLS}
        why, share = max(waits.items(), key=lambda one: 0.0 if np.isnan(one[1]) else one[1])
        if not share > 0.3:
            continue
        what, helps = _STALLS[why]
        # Waiting less gains no more than the issue slots that are free, nor more than what waits.
        most = min(share, 1 - issued)
        yield _draft(
            evidence,
            kernel,
            "A kernel's warps wait, and neither arithmetic nor memory is busy",
            [
                f"Arithmetic is {percent(arithmetic)} busy, memory {percent(memory)}; an instruction is "
                f"issued in {percent(issued)} of the cycles.",
                f"{percent(share)} of the warps' time is waiting for {what}.",
            ],
            f"What helps here: {helps}.",
            (most / 4, most / 2, 0.8 * most),
        )


@rule("re-read-memory", "kernel", item="kernels.l2-order", on="device")
def re_read_memory(evidence: Evidence) -> Iterator[Draft]:
    """A kernel moves more bytes than its tensors have."""
    for kernel in _kernels(evidence, libraries=True):
        least, moved = evidence.least_bytes.get(kernel.name), kernel.moved_bytes
        busy = kernel.of_peak("dram__throughput")
        if least is None or not (moved > 1.3 * least > 0 and busy > 0.5):
            continue
        waste = (1 - least / moved) * busy
        yield _draft(
            evidence,
            kernel,
            "A kernel moves its data more than once",
            [
                f"It moves {moved / 1e6:,.1f} MB a run where its tensors have {least / 1e6:,.1f} MB; memory "
                f"is {percent(busy)} busy."
            ],
            "Give it tensors that lie in memory as it reads them: .contiguous() once, or channels_last. In a "
            "kernel of your own order blocks so that neighbours share what they read.",
            (waste / 2, 0.8 * waste, waste),
            "medium",
        )


@rule("half-empty-wave", "kernel", item="kernels.wave-quantisation", on="device")
def half_empty_wave(evidence: Evidence) -> Iterator[Draft]:
    """The blocks of a kernel do not fill the card, or leave its last round nearly empty."""
    for kernel in _kernels(evidence):
        waves = kernel["launch__waves_per_multiprocessor"]
        active = kernel.of_peak("sm__cycles_active")
        if not (0 < waves < 5 and active < 0.8):
            continue
        rounds = float(np.ceil(waves))
        # Blocks as long as each other fill whole rounds; of the last a part stands idle.
        idle = 1 - waves / rounds
        if idle < 0.1:
            continue
        yield _draft(
            evidence,
            kernel,
            "A kernel's blocks do not fill the card",
            [
                f"They make {waves:.2f} rounds over all multiprocessors: {percent(idle)} of the room in "
                f"{rounds:.0f} is empty. Multiprocessors are at work {percent(active)} of the time."
            ],
            "More and smaller blocks, split the long axis (split-K), or a persistent kernel with one block "
            "for each multiprocessor.",
            (idle / 4, idle / 2, idle),
        )


@rule("special-function-bound", "kernel", item="kernels.fast-math", on="device")
def special_function_bound(evidence: Evidence) -> Iterator[Draft]:
    """exp, rsqrt and conversions are what a kernel waits for."""
    for kernel in _kernels(evidence):
        busy = kernel.of_peak("sm__inst_executed_pipe_xu")
        if not busy > 0.6:
            continue
        others = np.nanmax([0.0, kernel.of_peak("sm__pipe_fma_cycles_active"), kernel.memory_busy])
        free = max(0.0, busy - float(others))
        if free < 0.1:
            continue
        yield _draft(
            evidence,
            kernel,
            "Special functions are what a kernel waits for",
            [
                f"The unit for exp, rsqrt and conversions is {percent(busy)} busy; what is busiest after it, "
                f"{percent(float(others))}."
            ],
            "exp2 with the factor folded into the scale instead of exp, fewer conversions between types, or "
            "a polynomial on the ordinary units.",
            (free / 4, free / 2, free),
        )


@rule("doubles-in-kernel", "kernel", item="precision.float64", on="device")
def doubles_in_kernel(evidence: Evidence) -> Iterator[Draft]:
    """A kernel computes in float64, as a literal without an f makes it."""
    for kernel in _kernels(evidence):
        busy = kernel.of_peak("sm__pipe_fp64_cycles_active")
        if not busy > 0.05:
            continue
        yield _draft(
            evidence,
            kernel,
            "A kernel computes in float64",
            [f"The float64 unit is {percent(busy)} busy; it has half of float32's speed at best."],
            "Write constants as 1.0f in CUDA and tl.float32 in Triton, if float64 is not meant.",
            (busy / 4, busy / 2, 0.8 * busy),
        )


@rule("diverging-threads", "kernel", item="kernels.divergence", on="device")
def diverging_threads(evidence: Evidence) -> Iterator[Draft]:
    """Of a warp's 32 threads many are idle: branches or odd sizes leave them out."""
    for kernel in _kernels(evidence):
        lanes = kernel["smsp__average_thread_inst_executed_pred_on_per_inst_executed.ratio"]
        issued = kernel["smsp__issue_active.avg.per_cycle_active"]
        if not (lanes < 24 and issued > 0.3):
            continue
        waste = (1 - lanes / 32) * min(1.0, issued)
        yield _draft(
            evidence,
            kernel,
            "Many threads of a kernel's warps are idle",
            [
                f"Of 32 threads {lanes:.0f} do the work of an instruction on average; instructions are "
                f"issued in {percent(issued)} of the cycles."
            ],
            "Sort or group work so that a warp's threads take the same branch, and give blocks sizes that "
            "are multiples of 32.",
            (waste / 4, waste / 2, waste),
        )
