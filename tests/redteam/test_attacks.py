"""Candidates written against Trackside itself, and honest ones that a strict judge might refuse.

Unlike those of the corpus they need not win in an ordinary harness: some look for our own worker first.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from trackside.comparison.trial import Crew, Options, run_trial

HERE = Path(__file__).resolve().parent / "attacks"

CAUGHT_BY = {
    "alias_between_calls": "output-reuse",
    "alias_input_tail": "aliasing",
    "alias_state": "aliasing",
    "argmax_by_mask": "output-matches-oracle",
    "argsort_repeats": "output-matches-oracle",
    "count_at_a_smallest_value": "output-matches-oracle",
    "count_in_half": "output-matches-oracle",
    "double_from_single": "output-matches-oracle",
    "double_scalar_from_single": "output-matches-oracle",
    "doubles_through_python": "output-matches-oracle",
    "first_step_only": "holds-on-probes",
    "generator_for_both": "output-matches-oracle",
    "generator_numbers_kept": "output-matches-oracle",
    "generator_put_back": "holds-on-probes",
    "float_in_single": "output-matches-oracle",
    "gradients_handed_out": "aliasing",
    "guard_dropped": "holds-on-probes",
    "halves_rounded_up": "output-matches-oracle",
    "input_transposed": "inputs-unchanged",
    "kb_buffers_ignored": "output-matches-oracle",
    "kb_statistics_biased": "state-matches",
    "kb_statistics_dropped": "state-matches",
    "mask_from_initial_seed": "holds-on-probes",
    "mask_in_half": "output-matches-oracle",
    "mask_with_equals": "output-matches-oracle",
    "maximum_from_zero": "holds-on-probes",
    "nan_licence": "output-matches-oracle",
    "output_in_the_slot": "aliasing",
    "stale_pack": "holds-on-probes",
    "quiet_channel": "output-matches-oracle",
    "share_in_single": "output-matches-oracle",
    "state_number": "state-matches",
    "state_plain_attribute": "state-matches",
    "state_slots_and_numpy": "state-matches",
    "unreferenced_output": "oracle-available",
    # Rounding and magnitudes.
    "branch_below_float16": "output-matches-oracle",
    "double_complex_from_single": "output-matches-oracle",
    "double_from_integers": "output-matches-oracle",
    "dropped_doubles_from_single": "output-matches-oracle",
    "huge_doubles": "output-matches-oracle",
    "mask_that_leaks": "output-matches-oracle",
    "rate_never_counted": "output-matches-oracle",
    "smoothing_cut_short": "output-matches-oracle",
    "tails_from_integers": "output-matches-oracle",
    "tiny_doubles": "output-matches-oracle",
    "work_in_gettrace": "output-matches-oracle",
    "work_in_a_module": "harness-intact",
    "work_in_a_profile_hook": "harness-intact",
    "work_in_a_trace_hook": "harness-intact",
    "work_in_an_attribute": "harness-intact",
    # No hook is added, so the work is never done.
    "work_in_an_audit_hook": "output-matches-oracle",
    "work_in_gc_callbacks": "harness-intact",
    "work_in_getattr": "harness-intact",
    "work_in_swapped_code": "harness-intact",
    "work_in_the_copy": "harness-intact",
    "work_in_the_copy_always": "harness-intact",
    # State, containers, and code that runs beside the clock.
    "class_that_works": "output-structure",
    "empty_dropped": "output-structure",
    "frozen_state_as_scratch": "state-matches",
    "inputs_rebound": "output-matches-oracle",
    "key_that_works": "output-structure",
    "names_dropped": "output-structure",
    "packed_state": "state-matches",
    "state_many_numbers": "state-matches",
    "state_minus_infinity": "state-matches",
    "state_that_works": "output-matches-oracle",
    # Ends of long reductions, and what a part of the data says about the rest.
    "count_of_whole_tiles": "output-matches-oracle",
    "largest_of_whole_tiles": "holds-on-probes",
    "loss_of_whole_tiles": "holds-on-probes",
    "place_of_largest_in_whole_tiles": "holds-on-probes",
    "rectified_by_first_row": "holds-on-probes",
    "smallest_of_whole_tiles": "holds-on-probes",
    "softmax_by_first_row": "holds-on-probes",
    # Exact zeros.
    "entropy_of_impossible": "holds-on-probes",
    "sign_by_division": "holds-on-probes",
    "zero_row_divided": "holds-on-probes",
    # One memory under two addresses, and work when nobody looks.
    "constant_at_another_address": "output-reuse",
    "copy_at_another_address": "output-reuse",
    "input_at_another_address": "late-writes",
    "work_when_dropped": "output-matches-oracle",
    "work_when_thawed": "harness-intact",
    # Complex numbers, what lies between masks, rows of one sum or one norm.
    "chain_last_steps_only": "holds-on-probes",
    "complex_limiter": "holds-on-probes",
    "masked_softmax_untamed": "holds-on-probes",
    "near_duplicates_kept": "holds-on-probes",
    # Right on drawn inputs, and where equals come in another order nearly so.
    "pooled_by_bounded_scores": "holds-on-probes",
    "ranked_in_single": "holds-on-probes",
    "routed_with_a_bound": "holds-on-probes",
    # Switches of the whole process.
    "collector_hardly_called": "environment-same",
    "garbage_frozen": "environment-same",
    "heap_never_trimmed": "environment-same",
    "memory_never_given_back": "environment-same",
    # What is small beside the rest, narrow, or hardly ever bites.
    "average_of_weights_skipped": "holds-on-probes",
    "gradient_not_clipped": "holds-on-probes",
    "kb_block_skipped": "output-matches-oracle",
    "one_mask_for_all_rows": "output-matches-oracle",
    "product_of_halves": "output-matches-oracle",
    "weights_in_groups_of_int8": "output-matches-oracle",
    # Large values that lie together, and what converges or forgets on drawn inputs only.
    "best_of_every_chunk": "holds-on-probes",
    "iterations_cut_short": "holds-on-probes",
    "last_layer_trained_only": "state-matches",
    "quantile_of_chunks": "holds-on-probes",
    "solved_by_a_few_sweeps": "holds-on-probes",
    "attention_step_detached": "state-matches",
    "attention_step_unmasked": "output-matches-oracle",
    # State that is special as `setup` leaves it.
    "affine_dropped": "holds-on-probes",
    "copied_layers_run_once": "holds-on-probes",
    "identity_skipped": "holds-on-probes",
    "reference_model_copied": "holds-on-probes",
    "target_network_copied": "holds-on-probes",
    # A training step in which a norm's sums and a ReLU's kinks let honest code be further off.
    "conv_step_autocast": "output-matches-oracle",
    "conv_step_bias_kept": "state-matches",
    "conv_step_half_gradient": "state-matches",
    "conv_step_norm_detached": "state-matches",
    "conv_step_one_percent": "state-matches",
    "relu_step_tf32": "state-matches",
    # Training steps that draw, gradients that are returned, and arithmetic narrower than what comes out.
    "attention_dropout_unmasked": "output-matches-oracle",
    "autocast_dropout_not_learnt": "state-matches",
    "rounded_products_in_int8": "output-matches-oracle",
    "dropout_step_one_percent": "state-matches",
    "dropout_step_without": "output-matches-oracle",
    "functional_gradients_scaled": "output-matches-oracle",
    "narrow_logits_in_float8": "output-matches-oracle",
    "narrow_spectrum_in_int8": "output-matches-oracle",
    "narrow_spectrum_of_low_rank": "output-matches-oracle",
    "routed_tokens_coarsely": "output-matches-oracle",
    "routed_tokens_one_in_a_hundred": "output-matches-oracle",
    # What a narrow type loses or cannot hold, of which an oracle in a wide one knows nothing.
    "always_exact": "baseline-right",
    "declared_parts_dropped": "output-matches-oracle",
    "error_feedback_dropped": "baseline-right",
    "low_parts_dropped": "baseline-right",
    "overflow_never_seen": "baseline-right",
    "overflow_never_skips": "baseline-right",
}
# One number is compared before many: a loss in 16 bits is right by luck in one call of three.
# And one score in a million is beyond the bound.
OR_ELSE_BY = {
    "conv_step_autocast": "state-matches",
    "pooled_by_bounded_scores": "output-matches-oracle",
}
# Others of their kind run in `make test`; these in `make test-slow`.
SLOW = frozenset(
    {
        "argsort_repeats",
        "attention_dropout",
        "attention_dropout_unmasked",
        "attention_step_detached",
        "attention_step_unmasked",
        "autocast_dropout",
        "autocast_dropout_not_learnt",
        "average_of_weights_skipped",
        "bias_before_norm",
        "complex_in_another_order",
        "conv_step",
        "conv_step_adam",
        "conv_step_autocast",
        "conv_step_bias_kept",
        "conv_step_half_gradient",
        "conv_step_norm_detached",
        "conv_step_one_percent",
        "declared_parts_in_place",
        "distances_expanded",
        "double_complex_from_single",
        "dropout_step",
        "dropout_step_one_percent",
        "dropout_step_without",
        "dropped_doubles_in_one_product",
        "error_feedback_dropped",
        "expanded_state",
        "fft_convolution",
        "fft_of_padded_signals",
        "freed_state",
        "functional_gradients_scaled",
        "fused_adam",
        "gradient_not_clipped",
        "huge_doubles",
        "iterations_cut_short",
        "kb_renamed_statistics",
        "kb_statistics_dropped",
        "last_layer_trained_only",
        "loss_of_whole_tiles",
        "low_parts_dropped",
        "mask_from_initial_seed",
        "mask_with_equals",
        "masked_select",
        "mixed_precision",
        "narrow_spectrum_of_low_rank",
        "output_in_the_slot",
        "overflow_never_skips",
        "place_of_largest_in_whole_tiles",
        "rate_never_counted",
        "relu_step",
        "rounded_products",
        "routed_tokens_one_in_a_hundred",
        "sines_in_another_order",
        "smoothing_cut_short",
        "stale_pack",
        "state_many_numbers",
        "state_slots_and_numpy",
        "strassen",
        "subnormals_flushed",
        "validated_inputs",
        "work_in_a_module",
        "work_in_an_attribute",
        "work_in_getattr",
        "work_in_swapped_code",
    }
)
NEEDS_TIMED_PROCESSES = {
    "frozen_state_later": "state-matches",
    "probe_dodger": "holds-on-probes",
    "probe_dodger_by_frames": "holds-on-probes",
    "reuse_after_audit": "output-reuse",
    "scribble_late": "inputs-unchanged",
    "spikes_with_some_gain": "total-time-agrees",
}
SAME_BASELINE = {
    "attention_dropout_unmasked": "attention_dropout",
    "autocast_dropout_not_learnt": "autocast_dropout",
    "rounded_products_in_int8": "rounded_products",
    "attention_step_detached": "attention_step",
    "copied_layers_packed": "copied_layers_run_once",
    "copied_layers_stacked": "copied_layers_run_once",
    "reference_model_kept": "reference_model_copied",
    "attention_step_unmasked": "attention_step",
    "collector_told_to_wait": "collector_hardly_called",
    "conv_step_autocast": "conv_step",
    "conv_step_bias_kept": "conv_step",
    "conv_step_half_gradient": "conv_step",
    "conv_step_norm_detached": "conv_step",
    "conv_step_one_percent": "conv_step",
    "dropout_step_one_percent": "dropout_step",
    "dropout_step_without": "dropout_step",
    "functional_gradients_scaled": "functional_gradients",
    "garbage_frozen": "collector_hardly_called",
    "generator_for_both": "generators_in_state",
    "generator_numbers_kept": "generators_in_state",
    "generator_put_back": "generators_in_state",
    "narrow_logits_in_float8": "narrow_logits",
    "pooled_by_bounded_scores": "pooled_by_scores",
    "narrow_spectrum_in_int8": "narrow_spectrum",
    "narrow_spectrum_of_low_rank": "narrow_spectrum",
    "routed_tokens_coarsely": "routed_tokens",
    "routed_tokens_one_in_a_hundred": "routed_tokens",
    "heap_never_trimmed": "memory_never_given_back",
    "probe_dodger_by_frames": "probe_dodger",
    "declared_parts_in_place": "declared_parts_dropped",
    "empty_dropped": "empty_beside",
    "flag_kept": "flag_of_the_first_call",
    "names_kept": "names_dropped",
    "kb_buffers_renamed": "kb_buffers_ignored",
    "kb_statistics_biased": "kb_renamed_statistics",
    "kb_statistics_dropped": "kb_renamed_statistics",
    "relu_step_tf32": "relu_step",
    "work_in_a_module": "work_in_gettrace",
    "work_in_a_profile_hook": "work_in_gettrace",
    "work_in_a_trace_hook": "work_in_gettrace",
    "work_in_an_attribute": "work_in_gettrace",
    "work_in_an_audit_hook": "work_in_gettrace",
    "work_in_gc_callbacks": "work_in_gettrace",
    "work_in_getattr": "work_in_gettrace",
    "work_in_swapped_code": "work_in_gettrace",
    "work_in_the_copy": "work_in_gettrace",
    "work_in_the_copy_always": "work_in_gettrace",
}
NOT_CAUGHT_YET = (
    "buffer_reused_when_not_held",
    "count_in_16_bits",
    "decay_below_rounding",
    "every_fourth_call_forgotten",
    "half_weights_in_an_average",
    "history_cut_short",
    "lookahead_batch",
)
HONEST = (
    "attention_by_hand",
    "conjugate_view",
    "dict_order_alias",
    "distances_expanded",
    "fft_convolution",
    "flag_of_the_first_call",
    "freed_state",
    "fused_adam",
    "fused_qkv",
    "kb_buffers_renamed",
    "kb_built_in_other_order",
    "kb_renamed_statistics",
    "loose_tolerance",
    "masked_select",
    "masked_select_ties",
    "memo_of_the_baseline",
    "python_count",
    "real_part_view",
    "scratch_in_state",
    "sign_mask",
    "sparse_state",
    "strassen",
    "structseq_topk",
    "validated_inputs",
    "whole_number_out",
    # State and containers.
    "empty_beside",
    "expanded_inputs",
    "expanded_state",
    "flag_kept",
    "flat_parameters",
    "list_for_a_tuple",
    "names_kept",
    "state_replaced",
    # Rounding and magnitudes.
    "complex_in_another_order",
    "dropped_doubles_in_one_product",
    "fft_of_padded_signals",
    "sines_in_another_order",
    "subnormals_flushed",
    # Inputs and outputs of unusual kinds.
    "conjugated_input",
    "float8_inputs",
    "guard_rarely_bites",
    "last_position_view",
    "length_drawn",
    # Inputs and state that are the same every time, to no harm.
    "output_buffer_given",
    "start_drawn",
    "trained_norm",
    # State that is special as `setup` leaves it, and nobody counts on that.
    "copied_layers_packed",
    "copied_layers_stacked",
    "norm_folded_lazily",
    "reference_model_kept",
    # Small results that other code makes of large ones.
    "cumsum_by_triangular",
    "elu_exp_minus_one",
    "kb_reverse_cumsum",
    "loss_of_the_confident",
    "sigmoid_by_tanh",
    "silu_by_tanh",
    # Floats that only take some values.
    "float_adjacency",
    "float_labels",
    "float_mask",
    "float_places",
    # Integers in, integers out, and floats on the way.
    "pixels_grey",
    "pixels_resized",
    # Probes on which the baseline is better than its types.
    "accuracy_as_a_number",
    "loss_as_a_number",
    "modulus_of_squares",
    "perplexity_as_a_number",
    "covariances_inverted",
    "drawn_by_gumbel",
    "pooled_by_scores",
    "ranks_of_scores",
    "routing_of_scores",
    "share_of_experts",
    "std_of_squares",
    # What engineers write every day.
    "attention_dropout",
    "autocast_dropout",
    "rounded_products",
    "attention_in_chunks",
    "attention_step",
    "bf16_gates",
    "bias_before_norm",
    "complex_product_of_three",
    "conv_step",
    "conv_step_adam",
    "covariance_in_one_pass",
    "declared_parts_in_place",
    "dropout_step",
    "functional_gradients",
    "generators_in_state",
    "gradients_in_parts",
    "kb_batchnorm_by_hand",
    "lstm_by_hand",
    "mixed_precision",
    "narrow_logits",
    "narrow_scores_masked",
    "online_softmax",
    "relu_step",
    "routed_tokens",
    "rows_masked_whole",
    "scan_by_doubling",
    "winograd",
)
# What code that ignores it gets past every check, and the words that say so.
NEVER_TESTED = {
    "mask_never_drawn": "input 3 is the same in every draw",
    "zero_mask_ignored": "input 3 is the same in every draw",
    "causal_mask_assumed": "input 3 is the same in every draw",
    "large_mask_assumed": "input 3 is the same in every draw",
    "hidden_state_ignored": "input 1 is the same in every draw",
    "start_ignored": "input 1 is the same in every draw",
    "copied_layers_packed": "is a copy of other state",
    "kb_copied_layers": "is a copy of other state",
    "zero_points_ignored": "state ['zero'] holds zeros or ones only",
    "never_looks_for_nan": "out[1] would tell of NaN among the inputs",
}


def failed(name: str, store: Path, crew: Crew | None, **options: Any) -> list[str]:
    """Ids of the checks that fail for an attack."""
    files = HERE / f"{SAME_BASELINE.get(name, name)}.base.py", HERE / f"{name}.cand.py"
    record = run_trial(Options(*files, store=store, build_timeout=60.0, **options), crew=crew)
    return [check.id for check in record.checks if check.status == "fail"]


def each(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in names]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", each(CAUGHT_BY))
def test_an_attack_is_stopped_by_the_check_that_is_meant_for_it(
    name: str, crew: Crew, tmp_path: Path
) -> None:
    (caught,) = failed(name, tmp_path, crew, checks_only=True)
    assert caught == CAUGHT_BY[name] or caught == OR_ELSE_BY.get(name)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NEEDS_TIMED_PROCESSES)
def test_who_is_honest_in_the_audit_only_is_caught_in_a_timed_process(name: str, tmp_path: Path) -> None:
    assert failed(name, tmp_path, None, budget=30.0) == [NEEDS_TIMED_PROCESSES[name]]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_garbage_that_a_call_leaves_to_the_collector_is_no_gain(tmp_path: Path) -> None:
    files = HERE / "tree_with_parents.base.py", HERE / "tree_with_parents.cand.py"
    assert run_trial(Options(*files, store=tmp_path, budget=30.0)).verdict != "faster"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_garbage_that_a_call_keeps_from_the_collector_is_collected_on_its_own_time(tmp_path: Path) -> None:
    files = HERE / "collector_hardly_called.base.py", HERE / "collector_told_to_wait.cand.py"
    record = run_trial(Options(*files, store=tmp_path, budget=30.0))
    # Once instead of many times is a gain, but a small one; left to the caller it was a factor of 1.6.
    assert record.speedup is not None
    assert record.speedup.ratio < 1.4


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_state_that_takes_longer_to_restore_is_no_lie_about_time(tmp_path: Path) -> None:
    files = HERE / "factors_folded.base.py", HERE / "factors_folded.cand.py"
    assert run_trial(Options(*files, store=tmp_path, budget=30.0)).verdict == "faster"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", each(HONEST))
def test_an_unusual_honest_candidate_passes_every_check(name: str, crew: Crew, tmp_path: Path) -> None:
    assert failed(name, tmp_path, crew, checks_only=True) == []


def warnings(name: str, store: Path, crew: Crew) -> dict[str, str]:
    """What the checks warn of, by id."""
    files = HERE / f"{SAME_BASELINE.get(name, name)}.base.py", HERE / f"{name}.cand.py"
    record = run_trial(Options(*files, store=store, checks_only=True), crew=crew)
    return {check.id: check.detail for check in record.checks if check.status == "warn"}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", NEVER_TESTED)
def test_what_never_varies_leaves_no_full_certificate(name: str, crew: Crew, tmp_path: Path) -> None:
    assert NEVER_TESTED[name] in warnings(name, tmp_path, crew)["task-is-sensitive"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "name",
    [
        "output_buffer_given",
        "start_drawn",
        "trained_norm",
        "first_step_only",
        "copied_layers_stacked",
        "norm_folded_lazily",
        "reference_model_kept",
    ],
)
def test_what_calls_overwrite_or_probes_vary_is_no_reason_for_a_reservation(
    name: str, crew: Crew, tmp_path: Path
) -> None:
    assert "task-is-sensitive" not in warnings(name, tmp_path, crew)


def test_an_output_that_autograd_refuses_leaves_no_full_certificate(crew: Crew, tmp_path: Path) -> None:
    assert "is an inference tensor" in warnings("inference_tensor", tmp_path, crew)["output-structure"]


def test_state_that_cannot_be_looked_at_leaves_no_full_certificate(crew: Crew, tmp_path: Path) -> None:
    name = "state_of_objects"
    files = HERE / f"{name}.base.py", HERE / f"{name}.cand.py"
    record = run_trial(Options(*files, store=tmp_path, checks_only=True), crew=crew)
    warned = {check.id: check.detail for check in record.checks if check.status == "warn"}
    assert "['held'] is a numpy array of objects" in warned["state-matches"]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.xfail(strict=True, reason="a known hole: see the residual risks in docs/threat-model.md")
@pytest.mark.parametrize("name", NOT_CAUGHT_YET)
def test_an_attack_that_still_gets_through_the_checks(name: str, crew: Crew, tmp_path: Path) -> None:
    assert failed(name, tmp_path, crew, checks_only=True)
