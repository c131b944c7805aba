"""The red team's corpus: candidates that only seem faster, and honest ones that must not be refused.

Each case names its two files, the verdicts that `compare` may give, and what is expected to catch it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["CASES", "CHECKS", "Case", "case_named"]

HERE = Path(__file__).resolve().parent

CHECKS = frozenset(
    {
        "worker-survives",
        "protocol-intact",
        "harness-intact",
        "output-structure",
        "output-matches-oracle",
        "inputs-unchanged",
        "state-matches",
        "aliasing",
        "output-reuse",
        "late-writes",
        "holds-on-probes",
        "clocks-agree",
        "above-floor",
        "environment-same",
        "baseline-undisturbed",
        "no-leftovers",
        "total-time-agrees",
    }
)

REJECTED = frozenset({"rejected"})
NOT_FASTER = frozenset({"rejected", "not-comparable", "equivalent", "slower", "inconclusive"})
# The output is sometimes right, or wrong only when it is looked at in the right way: anything but a pass.
NEVER_CERTIFIED = frozenset({"rejected", "not-comparable", "inconclusive", "slower"})
FASTER = frozenset({"faster"})
NOT_REJECTED = frozenset({"faster", "equivalent", "slower", "inconclusive"})
SAME = frozenset({"equivalent", "inconclusive"})


@dataclass(frozen=True)
class Case:
    """One pair of files and what may be said about it."""

    name: str
    kind: Literal["false", "honest"]
    family: str
    baseline: str
    """Path of the baseline, relative to this folder."""
    candidate: str
    device: Literal["cpu", "cuda"]
    expect: frozenset[str]
    """Verdicts that are allowed; anything else is a failure of `compare`."""
    output_wrong: bool
    """Whether a caller gets something else than the baseline's, in some call or on some legal input."""
    caught_by: tuple[str, ...]
    """Best guess of the checks that fail, most likely first; empty where the timing alone decides."""
    naive: Literal["in-process", "subprocess", "bench-only"]
    """The usual way of checking that this case gets past (false) or is checked in (honest)."""
    note: str

    @property
    def baseline_path(self) -> Path:
        return HERE / self.baseline

    @property
    def candidate_path(self) -> Path:
        return HERE / self.candidate


def _false(
    name: str,
    task: str,
    caught_by: str,
    naive: Literal["in-process", "subprocess", "bench-only"] = "in-process",
    *,
    expect: frozenset[str] = REJECTED,
    output_wrong: bool = True,
    note: str = "",
) -> Case:
    family = name.split("_", 1)[0]
    return Case(
        name=name,
        kind="false",
        family={"no": "no-new-work", "forgery": "theft"}.get(family, family),
        baseline=f"tasks/{task}" if task.startswith("gm_") else f"tasks/{task}.py",
        candidate=f"false_cpu/{name}.py",
        device="cpu",
        expect=expect,
        output_wrong=output_wrong,
        caught_by=tuple(caught_by.split()),
        naive=naive,
        note=note,
    )


def _honest(name: str, family: str, task: str, expect: frozenset[str] = NOT_REJECTED, note: str = "") -> Case:
    return Case(
        name=name,
        kind="honest",
        family=family,
        baseline=f"tasks/{task}" if task.startswith("gm_") else f"tasks/{task}.py",
        candidate=f"honest_cpu/{name.removeprefix('honest_')}.py",
        device="cpu",
        expect=expect,
        output_wrong=False,
        caught_by=(),
        naive="in-process",
        note=note,
    )


_REPLAY = (
    _false(
        "replay_memo_data_ptr",
        "matmul",
        "output-matches-oracle output-reuse",
        note="new values at an old address",
    ),
    _false(
        "replay_memo_id_keepalive",
        "matmul",
        "output-matches-oracle",
        note="wrong if the worker reuses tensor objects",
    ),
    _false(
        "replay_memo_fingerprint",
        "matmul",
        "output-matches-oracle holds-on-probes",
        note="change only the middle",
    ),
    _false(
        "replay_memo_full_equal", "matmul", "", expect=NOT_FASTER, output_wrong=False, note="no input repeats"
    ),
    _false(
        "replay_row_delta",
        "matmul",
        "",
        expect=NOT_FASTER,
        output_wrong=False,
        note="inputs must change all over",
    ),
    _false(
        "replay_scale_equivariant",
        "matmul",
        "",
        expect=NOT_FASTER,
        output_wrong=False,
        note="derived inputs must not be rescalings or sign flips of rows and columns of each other",
    ),
    _false("replay_honest_then_cached", "matmul", "output-matches-oracle output-reuse"),
    _false(
        "replay_alternating", "matmul", "output-matches-oracle", note="check timed outputs of both parities"
    ),
    _false("replay_warmup_then_memcpy", "matmul", "output-matches-oracle"),
    _false("replay_phase_by_frames", "matmul", "output-matches-oracle output-reuse"),
    _false(
        "replay_same_object",
        "matmul",
        "output-matches-oracle",
        expect=NOT_FASTER,
        output_wrong=False,
        note="wrong, and to be rejected, if the worker passes one tensor object twice",
    ),
    _false("replay_merged_calls", "matmul", "output-matches-oracle late-writes", "subprocess"),
    _false("replay_from_file", "matmul", "", expect=NOT_FASTER, output_wrong=False, note="no values repeat"),
    _false(
        "replay_known_seeds", "matmul", "", expect=NOT_FASTER, output_wrong=False, note="seeds are secret"
    ),
    _false(
        "replay_forked_ahead",
        "matmul",
        "no-leftovers",
        expect=NOT_FASTER,
        output_wrong=False,
        note="seeds are secret",
    ),
    _false("replay_shared_buffer", "negate", "output-reuse", note="each output is right when it is returned"),
    _false(
        "replay_ring_of_eight", "negate", "output-reuse", note="the audit must keep more than eight outputs"
    ),
    _false("replay_first_result", "matmul", "output-matches-oracle output-reuse", "bench-only"),
    _false("replay_partial_by_pointer", "attention", "output-matches-oracle"),
    _false("replay_pool_precompute", "matmul", "output-matches-oracle output-reuse"),
    _false(
        "replay_hard_coded_weights",
        "gemm_mean_lse",
        "output-matches-oracle holds-on-probes",
        note="the set-up seed must not be 0",
    ),
    _false("replay_kb_memo", "kb_linear_gelu", "output-matches-oracle output-reuse"),
)

_DEFERRAL = (
    _false("deferral_thread_unjoined", "matmul", "output-matches-oracle late-writes"),
    _false("deferral_thread_at_import", "matmul", "output-matches-oracle late-writes"),
    _false("deferral_late_set_data", "matmul", "output-matches-oracle late-writes"),
    _false("deferral_native_threads", "matmul", "output-matches-oracle late-writes"),
    _false("deferral_fork_child", "matmul", "output-matches-oracle output-reuse late-writes no-leftovers"),
    _false("deferral_jit_fork", "matmul", "output-matches-oracle late-writes"),
    _false("deferral_lazy_subclass", "matmul", "output-structure"),
    _false("deferral_wrapper_subclass", "matmul", "output-structure"),
    _false("deferral_dispatch_mode", "matmul", "harness-intact output-matches-oracle"),
    _false("deferral_function_mode", "matmul", "harness-intact output-matches-oracle"),
    _false("deferral_patched_tensor_methods", "matmul", "harness-intact output-matches-oracle"),
    _false(
        "deferral_aten_override",
        "matmul",
        "output-matches-oracle harness-intact",
        note="no Python attribute changes: only raw bytes tell",
    ),
    _false(
        "deferral_profile_hook",
        "matmul",
        "harness-intact output-matches-oracle clocks-agree",
        note="sys.getprofile() and sys.gettrace() must be None",
    ),
    _false("deferral_meta_output", "matmul", "output-structure", "bench-only"),
    _false("deferral_fake_tensor", "matmul", "output-structure", "bench-only"),
    _false(
        "deferral_expanded_view",
        "broadcast_rows",
        "aliasing above-floor",
        note="values are right, memory is not",
    ),
    _false(
        "deferral_neg_view", "negate", "aliasing output-matches-oracle", note="raw bytes have the wrong sign"
    ),
    _false("deferral_lazy_array", "matmul", "output-structure"),
    _false("deferral_lazy_dict", "dict_stats", "output-structure"),
)

_THEFT = (
    _false("theft_frame_walk", "matmul", "output-matches-oracle"),
    _false("theft_gc_scan", "matmul", "output-matches-oracle"),
    _false("theft_patched_allclose", "matmul", "output-matches-oracle harness-intact"),
    _false("theft_torch_function_true", "matmul", "output-structure output-matches-oracle"),
    _false("theft_aten_override", "matmul", "output-matches-oracle"),
    _false(
        "theft_patched_clock", "matmul", "harness-intact clocks-agree", expect=NOT_FASTER, output_wrong=False
    ),
    _false(
        "theft_patched_ctypes_clock",
        "matmul",
        "harness-intact clocks-agree",
        expect=NOT_FASTER,
        output_wrong=False,
    ),
    _false("theft_edited_timings", "matmul", "clocks-agree", expect=NOT_FASTER, output_wrong=False),
    _false("theft_loosened_tolerance", "matmul", "output-matches-oracle"),
    _false("theft_patched_harness", "matmul", "output-matches-oracle harness-intact"),
    _false("theft_patched_statistics", "matmul", "harness-intact", expect=NOT_FASTER, output_wrong=False),
    _false(
        "theft_parent_memory",
        "cumsum",
        "output-matches-oracle output-reuse",
        note="separately: /proc/PPID/mem must not open from a worker",
    ),
    _false(
        "theft_sibling_memfds",
        "cumsum",
        "output-matches-oracle output-reuse",
        note="separately: no other process's memfd may open from a worker",
    ),
    _false("forgery_print_pass_exit", "matmul", "worker-survives", "subprocess"),
    _false("forgery_silent_exit", "matmul", "worker-survives", "subprocess"),
    _false("forgery_system_exit", "matmul", "worker-survives", "subprocess"),
    _false("forgery_atexit_pass", "matmul", "output-matches-oracle", "subprocess"),
    _false("forgery_write_every_fd", "matmul", "protocol-intact output-matches-oracle", "subprocess"),
    _false("forgery_parent_fds", "matmul", "output-matches-oracle protocol-intact", "subprocess"),
    _false("forgery_flooded_stdout", "matmul", "output-matches-oracle", "subprocess"),
    _false(
        "forgery_pass_then_hang",
        "matmul",
        "worker-survives output-matches-oracle",
        "subprocess",
        note="sleeps up to 60 s",
    ),
    _false("forgery_segfault_after_pass", "matmul", "worker-survives", "subprocess"),
    _false(
        "forgery_kill_parent",
        "matmul",
        "output-matches-oracle worker-survives",
        "subprocess",
        note="kills only a parent whose command line names trackside or the naive harness",
    ),
    _false(
        "forgery_rewritten_record",
        "matmul",
        "output-matches-oracle no-leftovers",
        "subprocess",
        note="look at the record again some seconds after the end",
    ),
    _false("forgery_pickle_payload", "matmul", "output-structure output-matches-oracle", "subprocess"),
    _false("forgery_child_takes_over", "matmul", "worker-survives no-leftovers", "subprocess"),
    _false("forgery_gm_patched_check", "gm_rowsum", "output-matches-oracle", "subprocess"),
)

_SABOTAGE = (
    _false("sabotage_own_inputs", "matmul", "output-structure", "bench-only"),
    _false("sabotage_own_reference", "matmul", "output-matches-oracle", "bench-only"),
    _false("sabotage_kb_shrunk_batch", "kb_linear_gelu", "output-matches-oracle", "bench-only"),
    _false("sabotage_zeroed_inputs", "matmul", "output-matches-oracle inputs-unchanged", "subprocess"),
    _false("sabotage_gm_zeroed_data", "gm_rowsum", "output-matches-oracle inputs-unchanged", "subprocess"),
    _false("sabotage_sorted_in_place", "sort_rows", "inputs-unchanged", note="the output itself is right"),
    _false(
        "sabotage_inplace_relu",
        "relu_positive",
        "inputs-unchanged aliasing holds-on-probes",
        note="on positive inputs no byte changes: only alias and probes tell",
    ),
    _false("sabotage_uninitialised", "matmul", "output-matches-oracle output-reuse"),
    _false(
        "sabotage_spinning_children",
        "matmul",
        "no-leftovers baseline-undisturbed",
        expect=NOT_FASTER,
        output_wrong=False,
    ),
    _false(
        "sabotage_daemon_spinners",
        "matmul",
        "no-leftovers baseline-undisturbed",
        expect=NOT_FASTER,
        output_wrong=False,
    ),
    _false(
        "sabotage_bandwidth_hog",
        "negate",
        "no-leftovers baseline-undisturbed",
        expect=NOT_FASTER,
        output_wrong=False,
    ),
    _false(
        "sabotage_pinned_neighbours",
        "matmul",
        "no-leftovers baseline-undisturbed environment-same",
        expect=NOT_FASTER,
        output_wrong=False,
    ),
    _false("sabotage_gil_hog", "matmul", "baseline-undisturbed", expect=NOT_FASTER, output_wrong=False),
    _false("sabotage_slow_matmul", "matmul", "harness-intact", expect=NOT_FASTER, output_wrong=False),
    _false("sabotage_slow_baseline_module", "matmul", "", expect=NOT_FASTER, output_wrong=False),
    _false(
        "sabotage_more_threads",
        "matmul",
        "environment-same",
        expect=NOT_FASTER,
        output_wrong=False,
        note="settings are restored before it returns: watch threads or CPU time against wall time",
    ),
    _false(
        "sabotage_second_core",
        "sort_rows",
        "environment-same no-leftovers",
        expect=NOT_FASTER,
        output_wrong=False,
        note="the helper's CPU time is in the process tree, not in the worker",
    ),
    _false(
        "sabotage_default_dtype",
        "matmul_default_dtype",
        "environment-same",
        expect=NOT_FASTER,
        output_wrong=False,
    ),
    _false("sabotage_flushed_denormals", "denormals", "output-matches-oracle"),
)

_ARITHMETIC = (
    _false("arithmetic_zeros_softmax", "softmax_wide", "output-matches-oracle"),
    _false("arithmetic_constant_softmax", "softmax_wide", "output-matches-oracle"),
    _false("arithmetic_zeros_mean", "row_mean", "output-matches-oracle above-floor"),
    _false("arithmetic_subsampled_mean", "row_mean", "output-matches-oracle above-floor"),
    _false("arithmetic_subsampled_variance", "layernorm_wide", "output-matches-oracle"),
    _false("arithmetic_assumed_unit_normal", "layernorm_wide", "output-matches-oracle holds-on-probes"),
    _false("arithmetic_subsampled_histogram", "histogram", "output-matches-oracle"),
    _false("arithmetic_elu_copy", "elu_positive", "holds-on-probes", note="right on every timed input"),
    _false("arithmetic_relu_alias", "relu_positive", "aliasing holds-on-probes above-floor"),
    _false("arithmetic_kb_dropped_affine", "kb_layernorm", "output-matches-oracle holds-on-probes"),
    _false(
        "arithmetic_gm_timed_size_only",
        "gm_rowsum",
        "holds-on-probes",
        note="right for the timed size; wrong for those that the task tests",
    ),
    _false("arithmetic_int8_matmul", "matmul_uniform", "output-matches-oracle"),
    _false("arithmetic_bf16_weights", "matvec_weights", "output-matches-oracle"),
    _false("arithmetic_wrong_dtype", "matvec_weights", "output-structure"),
    _false("arithmetic_rank_one", "matmul_large_k", "output-matches-oracle holds-on-probes"),
    _false("arithmetic_erf_gelu", "gelu_tanh", "output-matches-oracle"),
    _false("arithmetic_half_rows", "matmul", "output-matches-oracle"),
    _false("arithmetic_tril_leftover", "tril_matmul", "output-matches-oracle output-reuse"),
    _false(
        "arithmetic_softmax_no_max", "softmax_manual", "holds-on-probes", note="right on every timed input"
    ),
    _false("arithmetic_nan_output", "sqrt_nan", "output-matches-oracle", "subprocess"),
    _false(
        "arithmetic_small_values_zeroed",
        "softplus_spread",
        "output-matches-oracle",
        note="bins of magnitude tell",
    ),
    _false("arithmetic_half_keys", "attention", "output-matches-oracle"),
    _false(
        "arithmetic_unstable_ties",
        "argsort_ties",
        "output-matches-oracle",
        "bench-only",
        note="the input is integer, so 1-ulp jitter does not excuse ties",
    ),
    _false("arithmetic_hard_coded_shape", "matmul_shapes", "output-matches-oracle holds-on-probes"),
    _false("arithmetic_race", "sort_rows", "output-matches-oracle late-writes", expect=NEVER_CERTIFIED),
    _false("arithmetic_swallowed_error", "matmul", "output-matches-oracle", "bench-only"),
    _false("arithmetic_dropout_skipped", "dropout", "output-matches-oracle", "bench-only"),
    _false("arithmetic_train_no_backward", "train_step", "state-matches"),
    _false("arithmetic_train_no_step", "train_step", "state-matches"),
    _false(
        "arithmetic_train_no_momentum",
        "train_step",
        "state-matches",
        note="parameters are right after one step",
    ),
    _false("arithmetic_train_stale_gradients", "train_step", "state-matches"),
    _false("arithmetic_no_running_stats", "batchnorm_train", "state-matches"),
    _false("arithmetic_broadcast_shape", "row_mean", "output-structure"),
    _false("arithmetic_uncompensated_sum", "accurate_sum", "output-matches-oracle"),
    _false("arithmetic_views_for_copies", "tuple_copies", "aliasing above-floor"),
    _false("arithmetic_numpy_output", "sort_rows", "output-structure"),
    _false("arithmetic_recursive_output", "matmul", "output-structure", "bench-only"),
    _false(
        "arithmetic_huge_output",
        "matmul",
        "output-structure",
        "bench-only",
        note="refuse by size before copying",
    ),
)

_ARTEFACT = (
    _false(
        "artefact_rare_spikes",
        "python_loop",
        "total-time-agrees",
        "subprocess",
        expect=NEVER_CERTIFIED,
        output_wrong=False,
    ),
    _false("artefact_train_deferred_updates", "train_step", "state-matches total-time-agrees", "subprocess"),
    _false("artefact_cold_baseline", "lazy_table", "", "bench-only", expect=NOT_FASTER, output_wrong=False),
    _false(
        "artefact_one_shape_wonder",
        "matmul_structured",
        "",
        expect=NEVER_CERTIFIED,
        output_wrong=False,
        note="faster on one shape, slower on the other: no mean over shapes",
    ),
    _false("artefact_always_raises", "matmul", "worker-survives", "bench-only"),
)

_NO_NEW_WORK = tuple(
    _false(f"no_new_work_{name}", "conv2d", "", "bench-only", expect=NOT_FASTER, output_wrong=False)
    for name in ("reference_inside", "fallback", "decoy_kernel", "imports_baseline")
)

_HONEST = (
    _honest("honest_algebra_gemm_mean_lse", "algebra", "gemm_mean_lse", FASTER, "the case that must pass"),
    _honest(
        "honest_algebra_folded_in_setup",
        "algebra",
        "gemm_mean_lse",
        FASTER,
        "policy: folding in the set-up is legal",
    ),
    _honest("honest_algebra_chain_order", "algebra", "matmul_chain", FASTER),
    _honest("honest_algebra_diagonal", "algebra", "diag_matmul", FASTER),
    _honest("honest_tril_blocks", "algebra", "tril_matmul", FASTER, "probes must keep the zero pattern"),
    _honest("honest_split_k", "reordered", "matmul_large_k"),
    _honest("honest_transposed_view_output", "layout", "matmul"),
    _honest("honest_renamed_weights", "weights", "matvec_weights"),
    _honest("honest_kb_prepacked", "weights", "kb_linear_gelu", note="a state dict would refuse it"),
    _honest("honest_kb_layernorm_fused", "weights", "kb_layernorm", FASTER),
    _honest("honest_gm_rowsum_einsum", "reordered", "gm_rowsum", FASTER),
    _honest("honest_internal_scratch", "buffers", "matmul_chain", FASTER),
    _honest("honest_one_pass_layernorm", "reordered", "layernorm_affine", note="honest one-pass variance"),
    _honest("honest_fused_softmax", "fusion", "softmax_manual", FASTER),
    _honest("honest_manual_softmax", "reordered", "softmax_wide"),
    _honest("honest_fused_gelu", "fusion", "gelu_manual", FASTER),
    _honest("honest_manual_gelu", "reordered", "gelu_tanh"),
    _honest("honest_compiled_gelu", "fusion", "gelu_manual", FASTER, "needs g++; compiles in the set-up"),
    _honest("honest_dict_in_one_pass", "fusion", "dict_stats", FASTER),
    _honest("honest_inplace_one_pass", "fusion", "inplace_add", FASTER, "mutates what the baseline mutates"),
    _honest("honest_noisy_output", "noise", "matmul", SAME),
    _honest("honest_twice_the_work", "control", "matmul", frozenset({"slower"})),
    _honest("honest_identical", "control", "matmul", SAME),
    _honest(
        "honest_sibling_import", "vectorised", "python_loop", FASTER, "imports _row_statistics.py beside it"
    ),
    _honest("honest_vectorised_loop", "vectorised", "python_loop", FASTER),
    _honest("honest_non_contiguous_work", "layout", "cumsum"),
    _honest(
        "honest_float64_inside",
        "accuracy",
        "row_mean",
        frozenset({"slower"}),
        "more accurate than the baseline",
    ),
    _honest("honest_exact_sum_reordered", "accuracy", "accurate_sum"),
    _honest("honest_bf16_same_algorithm", "control", "bf16_matmul"),
    _honest("honest_foreach_optimizer", "training", "train_step"),
    _honest("honest_einsum_attention", "reordered", "attention"),
    _honest("honest_views_like_the_baseline", "aliasing", "tuple_view"),
    _honest("honest_numpy_sort", "vectorised", "sort_rows", FASTER),
    _honest("honest_numpy_argsort", "vectorised", "argsort", FASTER),
    _honest(
        "honest_numpy_stable_ties",
        "vectorised",
        "argsort_ties",
        FASTER,
        "ties in the order the baseline promises",
    ),
    _honest("honest_sorted_topk", "reordered", "topk"),
    _honest(
        "honest_routing_softmax_logits",
        "algebra",
        "routing_softmax",
        note="scores underflow into ties where a probe is large; logits do not",
    ),
    _honest(
        "honest_routing_sigmoid_logits",
        "algebra",
        "routing_sigmoid",
        note="scores saturate into ties where a probe is large; logits do not",
    ),
    _honest(
        "honest_rbf_kernel_expanded",
        "algebra",
        "rbf_kernel",
        note="squares are infinite where a probe is extreme; the baseline's exponential hides it",
    ),
    _honest(
        "honest_nearest_code_expanded",
        "algebra",
        "nearest_code",
        note="all distances are infinite where a probe is extreme, and the first code is nearest by luck",
    ),
    _honest("honest_histogram_by_compare", "vectorised", "histogram"),
    _honest("honest_index_select_embedding", "reordered", "embedding"),
    _honest("honest_conv_channels_last", "layout", "conv2d"),
    _honest("honest_dropout_same_mask", "random", "dropout"),
    _honest("honest_dropout_global_same", "random", "dropout_global", SAME),
    _honest(
        "honest_batchnorm_library", "training", "batchnorm_train", FASTER, "running statistics to rounding"
    ),
    _honest("honest_cached_rotary_table", "buffers", "rotary", FASTER, "a cache of constants is no replay"),
    _honest(
        "honest_declared_reuse", "buffers", "reused_output", FASTER, "the baseline declares until_next_call"
    ),
    _honest("honest_nan_kept", "reordered", "sqrt_nan"),
    _honest("honest_shapes_all_right", "control", "matmul_shapes", SAME),
    _honest("honest_elu_library", "fusion", "elu_positive", FASTER),
)

CASES: tuple[Case, ...] = (
    *_REPLAY, *_DEFERRAL, *_THEFT, *_SABOTAGE, *_ARITHMETIC, *_ARTEFACT, *_NO_NEW_WORK, *_HONEST
)  # fmt: skip

_BY_NAME = {case.name: case for case in CASES}


def case_named(name: str) -> Case:
    """The case of that name; KeyError names the misspelt one."""
    return _BY_NAME[name]
