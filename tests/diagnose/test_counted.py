"""Rules by the hardware's counters: each on a kernel that has the problem, and on one that has not.

The counters are written by hand, by the names of a Hopper GPU; what one counted is in tests marked gpu.
"""

from pathlib import Path

import pytest
from tests.diagnose.test_device import Step, made

from trackside.diagnose.counted import is_library_kernel
from trackside.diagnose.diagnosis import all_rules, diagnose
from trackside.diagnose.evidence import Machine, gather
from trackside.profiling.captured import Captured
from trackside.profiling.counter_names import COUNTERS
from trackside.records.profile import Finding
from trackside.trace.reader import read_trace

OWN = "my_fused_kernel"
_LOADED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"
_BUSY = "avg.pct_of_peak_sustained"

SOUND = {
    f"sm__throughput.{_BUSY}_elapsed": 55.0,
    f"dram__throughput.{_BUSY}_elapsed": 88.0,
    f"lts__throughput.{_BUSY}_elapsed": 50.0,
    f"l1tex__throughput.{_BUSY}_active": 40.0,
    f"sm__cycles_active.{_BUSY}_elapsed": 97.0,
    "dram__bytes_read.sum": 8.4e6,
    "dram__bytes_write.sum": 8.4e6,
    _LOADED: 100.0,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct": 100.0,
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": 4.0,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 0.0,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 1e5,
    "smsp__inst_executed_op_local_ld.sum": 0.0,
    "smsp__inst_executed_op_local_st.sum": 0.0,
    "smsp__inst_executed.sum": 1e6,
    "smsp__average_thread_inst_executed_pred_on_per_inst_executed.ratio": 31.5,
    "smsp__issue_active.avg.per_cycle_active": 0.7,
    "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct": 40.0,
    f"sm__inst_executed_pipe_xu.{_BUSY}_active": 10.0,
    f"sm__pipe_fma_cycles_active.{_BUSY}_active": 30.0,
    f"sm__pipe_fp64_cycles_active.{_BUSY}_active": 0.0,
    "launch__registers_per_thread": 64.0,
    "launch__waves_per_multiprocessor": 15.2,
}
"""A kernel that streams through memory as fast as that goes."""

PROBLEMS: dict[str, dict[str, float]] = {
    "uncoalesced-access": {
        _LOADED: 12.5,
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": 32.0,
    },
    "register-spills": {
        "smsp__inst_executed_op_local_ld.sum": 6e4,
        "smsp__inst_executed_op_local_st.sum": 3e4,
        "launch__registers_per_thread": 255.0,
    },
    "bank-conflicts": {
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 8e4,
        f"l1tex__throughput.{_BUSY}_active": 90.0,
    },
    "latency-bound-kernel": {
        f"sm__throughput.{_BUSY}_elapsed": 20.0,
        f"dram__throughput.{_BUSY}_elapsed": 25.0,
        f"lts__throughput.{_BUSY}_elapsed": 20.0,
        f"l1tex__throughput.{_BUSY}_active": 20.0,
        "smsp__issue_active.avg.per_cycle_active": 0.15,
        "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct": 80.0,
    },
    "half-empty-wave": {
        "launch__waves_per_multiprocessor": 1.1,
        f"sm__cycles_active.{_BUSY}_elapsed": 60.0,
    },
    "special-function-bound": {
        f"sm__inst_executed_pipe_xu.{_BUSY}_active": 92.0,
        f"dram__throughput.{_BUSY}_elapsed": 40.0,
    },
    "doubles-in-kernel": {f"sm__pipe_fp64_cycles_active.{_BUSY}_active": 70.0},
    "diverging-threads": {"smsp__average_thread_inst_executed_pred_on_per_inst_executed.ratio": 9.0},
}


def _own_kernel(step: Step) -> None:
    step.kernel(OWN, 92, 1260, 400)
    step.wait(1660)


def _strided(step: Step) -> None:
    inputs = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]}
    step.op("aten::add", 90, 20, **inputs)
    step.kernel("void at::native::elementwise_kernel<128, 2>", 95, 1260, 400)
    step.wait(1660)


def findings(path: Path, counters: dict[str, dict[str, float]]) -> dict[str, Finding]:
    evidence = gather(Captured(traced=read_trace(path)), ["train.py"], Machine(), counters=counters)
    assert evidence is not None
    found = diagnose(evidence, least=0.0)
    assert found.failed == []
    return {one.id: one for one in found.findings}


def test_counters_are_named_as_they_are_asked_for() -> None:
    assert set(SOUND) <= set(COUNTERS)
    assert {name for bent in PROBLEMS.values() for name in bent} <= set(COUNTERS)


@pytest.mark.parametrize("rule", sorted(PROBLEMS))
def test_a_kernel_s_problem_is_found_and_a_sound_kernel_is_not_blamed(rule: str, tmp_path: Path) -> None:
    trace = made(tmp_path / "own.json", _own_kernel)
    found = findings(trace, {OWN: SOUND | PROBLEMS[rule]})
    assert found[rule].gain.mid > 0.01
    assert OWN in found[rule].evidence[0]
    assert not set(findings(trace, {OWN: SOUND})) & {*PROBLEMS, "re-read-memory"}


def test_a_worse_kernel_promises_more(tmp_path: Path) -> None:
    trace = made(tmp_path / "own.json", _own_kernel)
    poor, worse = (
        findings(trace, {OWN: SOUND | {_LOADED: share}})["uncoalesced-access"].gain.mid
        for share in (70.0, 20.0)
    )
    assert poor < worse


def test_bytes_beyond_those_of_the_tensors_are_found_in_any_kernel(tmp_path: Path) -> None:
    trace = made(tmp_path / "strided.json", _strided)
    name = "void at::native::elementwise_kernel<128, 2>"
    counted = SOUND | {"dram__bytes_read.sum": 40e6}
    assert "of 12.6 MB" in findings(trace, {name: counted})["re-read-memory"].evidence[1].replace(
        "have", "of"
    )
    assert "re-read-memory" not in findings(trace, {name: SOUND | {"dram__bytes_write.sum": 4.2e6}})


def test_how_a_library_wrote_its_kernel_is_nobody_s_finding(tmp_path: Path) -> None:
    trace = made(tmp_path / "strided.json", _strided)
    bent = {name: value for problem in PROBLEMS.values() for name, value in problem.items()}
    name = "void at::native::elementwise_kernel<128, 2>"
    assert not set(findings(trace, {name: SOUND | bent})) & set(PROBLEMS)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("my_fused_kernel", False),
        ("_matmul_kernel_0d1d2d", False),
        ("void softmax_forward<float>(float*, int)", False),
        ("triton_poi_fused_add_relu_0", True),
        ("nvjet_sm90_hsh_128x256_64x4", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", True),
        ("void at::native::vectorized_elementwise_kernel<4>", True),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", True),
    ],
)
def test_kernels_of_libraries_are_told_by_their_names(name: str, theirs: bool) -> None:
    assert is_library_kernel(name) is theirs


def test_counters_that_a_chip_does_not_have_blame_nobody(tmp_path: Path) -> None:
    trace = made(tmp_path / "own.json", _own_kernel)
    assert not set(findings(trace, {OWN: {"gpu__time_duration.sum": 1e5}})) & set(PROBLEMS)


def test_every_rule_about_counters_is_tested_here() -> None:
    mine = {one.id for one in all_rules().values() if one.look.__module__.endswith(".counted")}
    assert mine == {*PROBLEMS, "re-read-memory"}
