"""The GPU cases: false candidates that must never be certified and honest ones that must never be rejected.

Paths are relative to tests/redteam. Their files say what they do; `note` says what makes them hard.
"""

from tests.redteam.corpus import FASTER, NOT_FASTER, NOT_REJECTED, REJECTED, SAME, Case

__all__ = ["CASES", "FALSE", "HONEST"]

# Wrong, but its way of failing may be a hang, a crash or flags that differ.
_REFUSED = frozenset({"rejected", "not-comparable", "inconclusive"})


def _false(name, task, family, caught_by, note="", *, expect=REJECTED, wrong=True):
    return Case(
        name=f"gpu_{name}",
        kind="false",
        family=family,
        baseline=f"gpu/tasks/{task}.py",
        candidate=f"gpu/false/{name}.py",
        device="cuda",
        expect=expect,
        output_wrong=wrong,
        caught_by=caught_by,
        naive="in-process",
        note=note,
    )


def _honest(name, task, family, expect=NOT_REJECTED, note=""):
    return Case(
        name=f"gpu_{name}",
        kind="honest",
        family=family,
        baseline=f"gpu/tasks/{task}.py",
        candidate=f"gpu/honest/{name}.py",
        device="cuda",
        expect=expect,
        output_wrong=False,
        caught_by=(),
        naive="in-process",
        note=note,
    )


_ORACLE = ("output-matches-oracle",)
_ALIAS = ("aliasing",)
_CLOCKS = ("clocks-agree",)
_REUSE = ("output-reuse",)
_PROBES = ("holds-on-probes",)

FALSE = (
    # Deferral: the work happens outside the two events.
    _false(
        "side_stream_nowait", "gemm_bf16", "deferral", _ORACLE, "wins if inputs are ready before the call"
    ),
    _false("side_stream_waits", "gemm_bf16", "deferral", _ORACLE),
    _false("side_stream_early_joined", "gemm_bf16", "deferral", _ORACLE, "needs launch hiding to win"),
    _false("stale_join_event", "gemm_bf16", "race", _ORACLE, "most rows may be right in a snapshot"),
    _false("leaves_other_stream_current", "gemm_bf16", "deferral", ("harness-intact", *_ORACLE)),
    _false(
        "left_behind_a_wait",
        "softmax_waits",
        "deferral",
        ("late-writes",),
        "right before anybody looks; its baseline waits, so the judge sees a gain",
        expect=NOT_FASTER,
        wrong=False,
    ),
    _false("thread_own_stream", "gemm_bf16", "deferral", _ORACLE),
    _false(
        "host_callback",
        "gemm_bf16",
        "deferral",
        _ORACLE,
        "a driver lock may turn it into a 50 ms stall instead",
        expect=_REFUSED,
    ),
    _false("lazy_subclass", "gemm_bf16", "deferral", ("output-structure",)),
    _false("dispatch_mode_left_on", "gemm_bf16", "deferral", ("harness-intact",)),
    _false("profile_hook_after_end", "gemm_bf16", "deferral", _ORACLE, "patches nothing of torch"),
    _false("finalizer_on_argument", "gemm_bf16", "deferral", _ORACLE, "a naive harness keeps its arguments"),
    _false(
        "chase_input_copy",
        "softmax_fp32",
        "deferral",
        _CLOCKS,
        "right output, joined, input copied on the timing stream: only a call whose inputs were complete and "
        "synchronised before run, or a copy slower than the baseline's, tells it apart",
        expect=NOT_FASTER,
        wrong=False,
    ),
    _false(
        "background_precompute",
        "gemm_bf16",
        "deferral",
        _CLOCKS,
        "the counterpart: wins only where inputs are complete before run is called",
        expect=NOT_FASTER,
    ),
    _false("pinned_output_late", "rowmax_to_host", "deferral", _ORACLE, "on the stream all is in order"),
    # Forgery: the harness's own means are turned against it.
    _false("patched_event_record", "gemm_bf16", "forgery", _ORACLE),
    _false("patched_synchronize", "gemm_bf16", "forgery", _ORACLE),
    _false("patched_timers", "gemm_bf16", "forgery", _CLOCKS, expect=NOT_FASTER, wrong=False),
    _false("patched_current_stream", "gemm_bf16", "forgery", _CLOCKS, expect=NOT_FASTER, wrong=False),
    _false(
        "patched_stream_class",
        "gemm_bf16",
        "forgery",
        _ORACLE,
        "harmless where everything runs on the default stream, as in the naive harness",
        expect=NOT_FASTER,
    ),
    _false("stolen_from_frames", "gemm_bf16", "theft", (), expect=NOT_FASTER, wrong=False),
    # Replay: an earlier answer is given again.
    _false("memo_data_ptr", "gemm_bf16", "replay", _ORACLE),
    _false("memo_honest_start", "gemm_bf16", "replay", _ORACLE),
    _false(
        "memo_fingerprint",
        "gemm_bf16",
        "replay",
        ("holds-on-probes", *_ORACLE),
        "right, and slower, for as long as the values are fresh",
        expect=NOT_FASTER,
    ),
    _false("memo_device_select", "softmax_fp32", "replay", _REUSE, "right while values are fresh"),
    _false(
        "merged_calls",
        "pointwise_small",
        "replay",
        ("total-time-agrees", *_ORACLE),
        "seven of eight are empty",
    ),
    _false("phase_sniffer", "gemm_bf16", "replay", _ORACLE, expect=NOT_FASTER),
    _false("graph_stale_input", "mlp_chain", "replay", _ORACLE),
    _false("graph_missing_kernel", "mlp_chain", "replay", _ORACLE),
    _false(
        "graph_first_address", "residual_conv", "replay", _ORACLE, "right where all inputs lie in one place"
    ),
    _false("mlp_stale_product", "mlp_module", "replay", _ORACLE),
    _false("shared_output_buffer", "pointwise_small", "reuse", _REUSE, "right until the next call"),
    _false("graph_output_reused", "mlp_chain", "reuse", _REUSE, "mlp_chain promises fresh outputs"),
    # Contract: the values are right, the tensor is not what the baseline returns.
    _false("output_on_cpu", "gemm_bf16", "contract", ("output-structure",)),
    _false("expanded_view", "repeat_rows", "contract", ("output-structure", *_ALIAS)),
    _false("relu_returns_input", "relu_positive", "contract", (*_ALIAS, "holds-on-probes")),
    _false("relu_inplace", "relu_positive", "contract", (*_ALIAS, "inputs-unchanged")),
    _false("copy_returns_view", "copy_1gib", "contract", _ALIAS),
    _false(
        "copy_on_write",
        "copy_1gib",
        "contract",
        ("above-floor", *_ALIAS),
        "asking for its address makes the copy, after the clock has stopped",
        wrong=False,
    ),
    # Measurement artefacts.
    _false(
        "persisting_l2",
        "pointwise_small",
        "artefact",
        ("above-floor", *_CLOCKS),
        "the same instructions on warm data; equal where the inputs are written just before the call",
        expect=NOT_FASTER,
        wrong=False,
    ),
    _false(
        "leftover_hog",
        "gemm_bf16",
        "sabotage",
        ("no-leftovers", "baseline-undisturbed"),
        "slows the other arm's turn, not its own",
        expect=NOT_FASTER,
        wrong=False,
    ),
    # Wrong arithmetic.
    _false("tf32_flag_global", "gemm_fp32", "arithmetic", ("environment-same", *_ORACLE), expect=_REFUSED),
    _false("tf32_flag_hidden", "gemm_fp32", "arithmetic", _ORACLE),
    _false("tf32_triton", "gemm_fp32", "arithmetic", _ORACLE, "no flag to see"),
    _false("fp16_for_fp32", "gemm_fp32", "arithmetic", _ORACLE),
    _false("bf16_for_fp32", "tril_matmul", "arithmetic", _ORACLE),
    _false("fp8_for_bf16", "gemm_bf16", "arithmetic", _ORACLE),
    _false("int8_for_bf16", "gemm_bf16", "arithmetic", _ORACLE, "about 1 % of the output's size everywhere"),
    _false("kernelbench_fp16", "kernelbench_linear_norm", "arithmetic", _ORACLE),
    _false("kernelbench_skips_affine", "kernelbench_linear_norm", "arithmetic", _ORACLE),
    _false("layernorm_skips_affine", "layernorm_affine", "arithmetic", _ORACLE),
    _false("softmax_zeros", "softmax_fp32", "arithmetic", _ORACLE),
    _false("mean_of_sample", "mean_2p26", "arithmetic", _ORACLE),
    _false(
        "attention_half_keys",
        "attention_sdpa",
        "arithmetic",
        ("holds-on-probes",),
        "within a few bf16 roundings on the timed inputs; random signs show it",
    ),
    _false("train_gradient_skipped", "train_step", "arithmetic", (*_ORACLE, "state-matches")),
    _false("train_bf16", "train_step", "arithmetic", _ORACLE),
    _false("train_no_update", "train_step", "arithmetic", ("state-matches",), "the new state is an output"),
    # Padding that ordinary values hide.
    _false("amax_pad_zero", "amax_rows", "arithmetic", _PROBES, "normal rows never lack a positive value"),
    _false("softmax_pad_zero", "softmax_fp16", "arithmetic", _PROBES, "lost in fp16 while logits are large"),
    # Memory that was never written.
    _false("half_rows_triton", "softmax_fp32", "unwritten", _ORACLE),
    _false("tril_one_dimensional_grid", "tril_matmul", "unwritten", _ORACLE),
    _false(
        "tril_upper_uninitialised",
        "tril_matmul",
        "unwritten",
        _ORACLE,
        "right on memory fresh from the driver",
    ),
    _false("silent_launch_failure", "pointwise_small", "unwritten", _ORACLE),
    _false("uninitialised_output", "gemm_bf16", "unwritten", _ORACLE),
)

HONEST = (
    _honest("gemm_identical", "gemm_bf16", "same", SAME),
    _honest("pointwise_identical", "pointwise_small", "same", SAME),
    _honest("copy_into_empty", "copy_1gib", "same", SAME),
    _honest("softmax_slow", "softmax_fp32", "slower", frozenset({"slower"})),
    _honest("softmax_triton", "softmax_fp32", "triton"),
    _honest("layernorm_triton", "layernorm_affine", "triton"),
    _honest("mean_triton", "mean_2p26", "triton"),
    _honest("softmax_two_streams", "softmax_fp32", "streams"),
    _honest(
        "graph_copies_and_clones", "mlp_chain", "graph", note="fixed buffers in its state change by design"
    ),
    _honest("graph_until_next_call", "mlp_chain_reused", "graph", note="reuse that the baseline declares"),
    _honest(
        "compile_reduce_overhead", "mlp_chain", "compile", note="torch.compile's own reuse, to be said so"
    ),
    _honest("compile_pointwise", "pointwise_chain", "compile", FASTER),
    _honest("mlp_prepacked", "mlp_module", "prepacked"),
    _honest("kernelbench_renamed", "kernelbench_linear_norm", "prepacked"),
    _honest("tril_blocks", "tril_matmul", "algebra", frozenset({"faster", "inconclusive"})),
    _honest("linear_mean_collapsed", "linear_mean_lse", "algebra", FASTER, "over ten times, legal"),
    _honest("train_step_by_hand", "train_step", "training"),
    _honest("pinned_host_output", "logsumexp_pinned", "outputs", note="its output is in pinned host memory"),
    _honest("quantise_compiled", "quantise_uint8", "compile", note="rounding turns some integers by one"),
    _honest("linear_leaky_addmm", "linear_leaky_relu", "equivalent", note="a kink where rounding decides"),
    _honest("moe_route_logits", "moe_routing", "algebra", note="near ties decide who is chosen"),
    # What people do every day.
    _honest("attention_flash", "attention_eager", "everyday", FASTER),
    _honest("rmsnorm_residual_triton", "rmsnorm_residual", "everyday", FASTER),
    _honest("swiglu_merged", "swiglu_mlp", "everyday"),
    _honest("qkv_merged", "qkv_three_linears", "everyday", note="its outputs lie side by side in one tensor"),
    _honest("conv_bn_folded", "conv_bn_relu", "everyday", note="TF32 is on by default for convolutions"),
    _honest("conv_channels_last", "conv_bn_relu", "everyday", note="its output has other strides"),
    _honest("cross_entropy_chunked", "cross_entropy_head", "everyday"),
    _honest("rope_real", "rope_complex", "everyday"),
    _honest("adamw_foreach", "adamw_loop", "everyday", FASTER, "120 tensors of state change"),
    _honest("embedding_bag", "embedding_mean", "everyday", FASTER),
    _honest("decode_sdpa", "decode_kv_cache", "everyday"),
    _honest("small_products_bmm", "small_products_loop", "everyday", FASTER),
    _honest("histogram_bincount", "histogram_onehot", "everyday", FASTER),
    _honest("softmax_waits_too", "softmax_fp32", "everyday", note="the judge sees what waiting costs"),
    _honest(
        "train_cnn_channels_last",
        "train_cnn",
        "everyday",
        note="means over what TF32 makes, in running statistics",
    ),
    _honest("adamw_fused", "adamw_module", "everyday", note="its step lies on the GPU"),
)

CASES = (*FALSE, *HONEST)
