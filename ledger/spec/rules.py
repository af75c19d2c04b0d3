"""The rules between the parts of a plan, each a generator of problems; its parameters name the parts it reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ledger.spec import (
    rules_architecture,
    rules_attention,
    rules_context,
    rules_custom,
    rules_device,
    rules_effects,
    rules_experts,
    rules_layout,
    rules_model,
    rules_offload,
    rules_pipeline,
    rules_sharding,
    rules_states,
    rules_training,
)
from ledger.spec.places import Places
from ledger.spec.problems import Problem

Rule = Callable[..., Iterator[Problem]]
RULES: tuple[Rule, ...] = (
    rules_layout.devices_are_the_product,
    rules_layout.nodes_are_whole,
    rules_layout.heads_split,
    rules_layout.hidden_splits,
    rules_layout.vocabulary_splits,
    rules_layout.sequence_splits,
    rules_layout.batch_splits,
    rules_layout.zero_needs_replicas,
    rules_sharding.groups_multiply,
    rules_sharding.copies_are_of_something_split,
    rules_sharding.gathering_needs_zero_3,
    rules_sharding.wraps_are_full,
    rules_sharding.reduction_is_split,
    rules_sharding.buckets_are_of_replicas,
    rules_offload.host_updates_elements,
    rules_offload.host_weights_are_gathered,
    rules_offload.hosted_layers_are_alike,
    rules_offload.bare_models_keep_their_states,
    rules_offload.host_links_are_sends,
    rules_experts.experts_subdivide,
    rules_experts.experts_split,
    rules_experts.shared_experts_split,
    rules_experts.fields_belong_to_experts,
    rules_experts.tokens_find_experts,
    rules_experts.activations_exist,
    rules_experts.experts_have_a_kernel,
    rules_experts.dense_experts_are_scaled_before,
    rules_experts.scores_reach_the_activation,
    rules_experts.scores_are_zero_or_chosen,
    rules_experts.rows_are_aligned,
    rules_experts.balance_sees_all_layers,
    rules_experts.imbalance_is_possible,
    rules_pipeline.layers_fill_the_stages,
    rules_pipeline.stages_have_layers,
    rules_pipeline.stages_are_stated_once,
    rules_pipeline.interleave_needs_pipeline,
    rules_pipeline.schedule_needs_pipeline,
    rules_pipeline.schedule_fits_the_chunks,
    rules_pipeline.both_ends_share_the_work,
    rules_context.exchange_needs_context,
    rules_context.exchange_needs_a_fused_kernel,
    rules_context.rings_see_everything,
    rules_context.heads_split_over_context,
    rules_model.heads_share_keys,
    rules_model.rotary_is_even,
    rules_model.groups_have_names_of_their_own,
    rules_model.groups_take_turns,
    rules_attention.attention_has_its_own_keys,
    rules_attention.attention_sees_one_region,
    rules_attention.sinks_have_a_kernel,
    rules_attention.norms_find_their_heads,
    rules_attention.norms_fit_the_residual,
    rules_model.bare_models_have_no_layers,
    rules_custom.fields_belong_to_their_kind,
    rules_custom.custom_components_are_sound,
    rules_custom.custom_dims_split,
    rules_training.recompute_has_one_policy,
    rules_training.recompute_counts_equal_layers,
    rules_training.recompute_counts_what_there_is,
    rules_training.recomputed_components_exist,
    rules_training.predictions_are_rebuilt_whole,
    rules_training.counted_matmuls_are_kept,
    rules_training.loss_chunks_are_equal,
    rules_training.fused_linear_runs,
    rules_training.trained_parts_exist,
    rules_training.something_is_trained,
    rules_training.bare_models_train_whole,
    rules_training.adapters_find_their_matrices,
    rules_training.frozen_layers_move_alone,
    rules_model.sequences_are_stated,
    rules_model.positions_reach,
    rules_device.compute_has_a_peak,
    rules_device.flash_runs,
    rules_device.cpu_has_the_kernel,
    rules_architecture.attention_has_its_architecture,
    rules_architecture.operands_have_their_architecture,
    rules_device.memory_agrees,
    rules_device.peaks_are_dense,
    rules_device.pools_hold_what_is_allocated,
    rules_device.curves_are_complete,
    rules_states.update_exists,
    rules_states.every_weight_is_updated,
    rules_states.update_multiplies,
    rules_states.states_are_of_a_shape,
    rules_states.operands_are_aligned,
    rules_states.quantised_streams_are_saved,
    rules_states.recipes_fit_their_scales,
    rules_states.what_is_stored_narrow_is_wide,
)
WARNINGS: tuple[Rule, ...] = (
    rules_layout.sequence_needs_tensor,
    rules_experts.imbalance_has_an_effect,
    rules_offload.host_updates_take_time,
    rules_offload.host_sums_wait,
    rules_device.fp16_is_risky,
    rules_device.fp8_gradients_are_risky,
    rules_states.blocks_fit,
    rules_model.sequences_are_longer_than_the_model,
    rules_effects.kernels_find_their_parts,
    rules_effects.counts_run_no_kernels,
    rules_effects.failures_are_stated_whole,
    rules_effects.reductions_have_partners,
    rules_effects.groups_have_others,
    rules_effects.others_are_left,
    rules_effects.kept_names_exist,
    rules_effects.adapters_are_narrow,
)


def broken(table: tuple[Rule, ...], built: Mapping[str, Any], at: Places) -> Iterator[Problem]:
    """What the rules of a table find, as far as the parts they read could be built."""
    known = {**built, "at": at}
    for rule in table:
        needs = inspect.signature(rule).parameters
        if all(need in known for need in needs):
            yield from map(_told, rule(**{need: known[need] for need in needs}))


def _told(problem: Problem) -> Problem:
    """A problem that is told where its value is not written says why."""
    because = problem.where.because
    return replace(problem, message=f"{problem.message} ({because})") if because else problem
