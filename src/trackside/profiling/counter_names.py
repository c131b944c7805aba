"""Hardware counters that `--counters` reads, by their names in Nsight Compute on a Hopper GPU.

Four to eight of them are missing on other chips: what the chip does not have is left out, and said.
"""

__all__ = ["COUNTERS", "base_name"]

_SM = (
    "gpu__time_duration.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__cycles_active.max",
    "gpc__cycles_elapsed.max",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__warps_eligible.avg.per_cycle_active",
    "smsp__issue_active.avg.per_cycle_active",
    "sm__inst_executed.avg.per_cycle_active",
)
_PIPELINES = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "sm__ops_path_tensor_src_fp8.sum",
    "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
    "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tma.sum",
)
_MEMORY = (
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sector_hit_rate.pct",
    "lts__t_sectors_srcunit_ltcfabric.sum",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l1tex__t_sector_hit_rate.pct",
    "lts__t_sectors_op_atom.sum",
)
_ACCESS = (
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "smsp__inst_executed_op_local_ld.sum",
    "smsp__inst_executed_op_local_st.sum",
    "smsp__average_thread_inst_executed_per_inst_executed.ratio",
    "smsp__average_thread_inst_executed_pred_on_per_inst_executed.ratio",
    "smsp__sass_average_branch_targets_threads_uniform.pct",
)
_INSTRUCTIONS = (
    "smsp__inst_executed.sum",
    "smsp__sass_thread_inst_executed_op_conversion_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_integer_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_fp32_pred_on.sum",
)
_STALLS = tuple(
    f"smsp__warp_issue_stalled_{reason}_per_warp_active.pct"
    for reason in (
        "long_scoreboard",
        "short_scoreboard",
        "barrier",
        "wait",
        "math_pipe_throttle",
        "mio_throttle",
        "lg_throttle",
        "gmma",
        "no_instruction",
        "not_selected",
    )
)
_LAUNCH = (
    "launch__registers_per_thread",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__waves_per_multiprocessor",
)

COUNTERS: tuple[str, ...] = (*_SM, *_PIPELINES, *_MEMORY, *_ACCESS, *_INSTRUCTIONS, *_STALLS, *_LAUNCH)


def base_name(counter: str) -> str:
    """The name under which `ncu --query-metrics` lists it."""
    return counter.partition(".")[0]
