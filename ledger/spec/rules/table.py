"""The rules between the parts of a plan, each a generator of problems; its parameters name the parts it reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from ledger.spec.paths import Places
from ledger.spec.problems import Problem
from ledger.spec.rules import architecture, device, encoders, layout, model, serving, training

Rule = Callable[..., Iterator[Problem]]
# Parts that say how a model is trained: of a plan that serves, rules that read one of them have nothing to hold to.
OF_TRAINING = ("run", "optimizer", "recompute", "train", "operations", "data")
# Rules on kernels of training, in whose place serving runs its own.
OF_TRAINING_KERNELS: tuple[Rule, ...] = (architecture.sinks_have_a_kernel,)
RULES: tuple[Rule, ...] = (
    serving.plans_train_or_serve,
    serving.serving_has_parts_of_its_own,
    serving.serving_has_axes_of_its_own,
    serving.sequences_in_flight_are_stated_once,
    serving.shares_are_of_all,
    serving.served_tokens_see_each_other_by_known_kinds,
    serving.attention_over_a_cache_is_one_kernel,
    serving.prompts_are_longer_than_their_prefix,
    serving.steps_give_no_more_than_an_answer,
    serving.served_models_have_layers,
    serving.served_models_decode,
    serving.served_positions_reach,
    serving.served_formats_are_stored,
    serving.pruned_weights_serve,
    serving.engines_train_nothing,
    layout.devices_are_the_product,
    layout.nodes_are_whole,
    layout.pods_hold_whole_nodes,
    layout.heads_split,
    layout.hidden_splits,
    layout.vocabulary_splits,
    layout.sequence_splits,
    layout.batch_splits,
    layout.zero_needs_replicas,
    layout.groups_multiply,
    layout.copies_are_of_something_split,
    layout.gathering_needs_zero_3,
    layout.wraps_are_full,
    layout.reduction_is_split,
    layout.buckets_are_of_replicas,
    device.best_interval_follows,
    layout.offload_has_another_memory,
    layout.devices_are_joined,
    device.data_is_of_what_is_read,
    layout.host_updates_elements,
    layout.host_weights_are_gathered,
    layout.drives_are_stated,
    layout.hosted_layers_are_alike,
    layout.bare_models_keep_their_states,
    model.experts_subdivide,
    model.experts_split,
    model.shared_experts_split,
    model.fields_belong_to_experts,
    model.tokens_find_experts,
    model.activations_exist,
    model.experts_have_a_kernel,
    model.dense_experts_are_scaled_before,
    model.scores_reach_the_activation,
    model.scores_are_zero_or_chosen,
    model.rows_are_aligned,
    model.balance_sees_all_layers,
    model.imbalance_is_possible,
    layout.layers_fill_the_stages,
    layout.stages_have_layers,
    layout.stages_are_stated_once,
    layout.interleave_needs_pipeline,
    layout.schedule_needs_pipeline,
    layout.schedule_fits_the_chunks,
    layout.both_ends_share_the_work,
    layout.exchange_needs_context,
    layout.exchange_needs_a_fused_kernel,
    layout.rings_see_everything,
    layout.heads_split_over_context,
    model.layers_are_not_too_many,
    model.heads_share_keys,
    model.rotary_is_even,
    model.groups_have_names_of_their_own,
    model.groups_take_turns,
    architecture.attention_has_its_own_keys,
    architecture.attention_sees_one_region,
    architecture.sinks_have_a_kernel,
    architecture.both_directions_are_whole,
    architecture.norms_find_their_heads,
    architecture.norms_fit_the_residual,
    architecture.groups_share_states,
    architecture.states_are_whole,
    architecture.scans_know_no_documents,
    architecture.mixers_stand_alone,
    model.gate_and_up_are_there,
    model.transform_is_whole,
    model.bare_models_have_no_layers,
    architecture.fields_belong_to_their_kind,
    architecture.custom_components_are_sound,
    architecture.custom_dims_split,
    architecture.steps_are_of_custom_attention,
    architecture.custom_dims_have_one_size,
    architecture.tokens_that_see_each_other_are_together,
    training.recompute_has_one_policy,
    training.recompute_counts_equal_layers,
    training.recompute_counts_what_there_is,
    training.recomputed_components_exist,
    training.predictions_are_rebuilt_whole,
    training.counted_matmuls_are_kept,
    training.loss_has_parts,
    training.fused_linear_runs,
    training.trained_parts_exist,
    training.something_is_trained,
    training.bare_models_train_whole,
    training.adapters_find_their_matrices,
    training.frozen_layers_move_alone,
    training.experts_of_another_format_serve,
    training.stored_weights_are_frozen,
    training.stored_weights_are_multiplied_wide,
    training.quantised_weights_are_gathered,
    training.documents_fit_their_sequence,
    training.documents_have_a_kernel,
    architecture.models_are_of_blocks_or_of_parts,
    architecture.blocks_are_like_others,
    architecture.stems_are_sound,
    architecture.blocks_follow_each_other,
    architecture.blocks_stand_alone,
    architecture.blocks_are_replicated,
    architecture.blocks_are_rebuilt_whole,
    encoders.encoders_have_decoders,
    encoders.sources_are_stated,
    encoders.encoders_see_all,
    encoders.biases_have_a_table,
    encoders.two_sides_are_whole,
    encoders.two_sides_are_gathered_by_layer,
    encoders.shared_results_are_rebuilt_whole,
    encoders.encoders_are_trained,
    encoders.images_have_classes,
    encoders.patches_fill_the_image,
    encoders.class_token_sees_patches,
    encoders.sequences_are_images,
    encoders.images_are_whole,
    encoders.classes_have_one_row,
    model.sequences_are_stated,
    model.positions_reach,
    device.compute_has_a_peak,
    device.headroom_leaves_memory,
    device.flash_runs,
    device.cpu_has_the_kernel,
    architecture.attention_has_its_architecture,
    architecture.operands_have_their_architecture,
    device.memory_agrees,
    device.peaks_are_dense,
    device.pools_hold_what_is_allocated,
    training.update_exists,
    training.every_weight_is_updated,
    training.update_multiplies,
    training.states_are_of_a_shape,
    training.operands_are_aligned,
    training.quantised_streams_are_saved,
    training.recipes_fit_their_scales,
    training.what_is_stored_narrow_is_wide,
)
WARNINGS: tuple[Rule, ...] = (
    layout.sequence_needs_tensor,
    model.imbalance_has_an_effect,
    layout.host_is_stated,
    layout.host_sums_wait,
    device.links_are_as_measured,
    layout.pods_share_uplinks,
    training.blocks_fit,
    training.documents_are_shorter,
    model.sequences_are_longer_than_the_model,
    model.heads_begin_at_whole_reads,
    serving.served_sequences_are_longer_than_the_model,
    serving.engines_are_described,
    serving.caches_have_a_kernel,
    device.what_runs_heeds_it,
    device.kernels_find_their_parts,
    device.counts_run_no_kernels,
    device.losses_are_stated_whole,
    device.data_is_stated_whole,
    device.headroom_is_a_part,
    device.reductions_have_partners,
    device.groups_have_others,
    device.others_are_left,
    device.gradients_are_filled_once,
    device.kept_names_exist,
    device.adapters_are_narrow,
    training.adapters_have_a_format,
    training.formats_have_their_parts,
    training.counts_have_no_shapes,
    training.second_layouts_are_of_lasting_weights,
)


def rule_meanings() -> dict[str, str]:
    """The sentence of each rule, by its name in problems."""
    return {rule.__name__: (inspect.getdoc(rule) or "").partition("\n\n")[0] for rule in (*RULES, *WARNINGS)}


def check_rules(table: tuple[Rule, ...], built: Mapping[str, Any], at: Places) -> Iterator[Problem]:
    """The problems that the rules of a table find, as far as the parts they read could be built."""
    left_out = OF_TRAINING if built.get("serve") else ()
    parts = {**{name: part for name, part in built.items() if name not in left_out}, "at": at}
    for rule in table:
        needs = parts_read(rule)
        if left_out and rule in OF_TRAINING_KERNELS:
            continue
        if all(need in parts for need in needs):
            for problem in rule(**{need: parts[need] for need in needs}):
                yield replace(_add_reason(problem), rule=rule.__name__)


@cache
def parts_read(rule: Rule) -> tuple[str, ...]:
    """The parts of a plan that a rule reads: the names of its parameters."""
    return tuple(inspect.signature(rule).parameters)


def _add_reason(problem: Problem) -> Problem:
    """The problem; where its value is written elsewhere, the message says why it is reported here."""
    because = problem.where.because
    return replace(problem, message=f"{problem.message} ({because})") if because else problem
