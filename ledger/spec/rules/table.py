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
from ledger.spec.rules import architecture as attention
from ledger.spec.rules import architecture as blocks
from ledger.spec.rules import architecture as custom
from ledger.spec.rules import architecture as recurrence
from ledger.spec.rules import device as effects
from ledger.spec.rules import device as operations
from ledger.spec.rules import encoders as images
from ledger.spec.rules import layout as context
from ledger.spec.rules import layout as offload
from ledger.spec.rules import layout as pipeline
from ledger.spec.rules import layout as sharding
from ledger.spec.rules import model as experts
from ledger.spec.rules import training as documents
from ledger.spec.rules import training as formats
from ledger.spec.rules import training as states

Rule = Callable[..., Iterator[Problem]]
# Parts that say how a model is trained: of a plan that serves, rules that read one of them have nothing to hold to.
OF_TRAINING = ("run", "optimizer", "recompute", "train", "operations")
# Rules on kernels of training, in whose place serving runs its own.
OF_TRAINING_KERNELS: tuple[Rule, ...] = (attention.sinks_have_a_kernel,)
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
    sharding.groups_multiply,
    sharding.copies_are_of_something_split,
    sharding.gathering_needs_zero_3,
    sharding.wraps_are_full,
    sharding.reduction_is_split,
    sharding.buckets_are_of_replicas,
    operations.best_interval_follows,
    offload.host_updates_elements,
    offload.host_weights_are_gathered,
    offload.drives_are_stated,
    offload.hosted_layers_are_alike,
    offload.bare_models_keep_their_states,
    experts.experts_subdivide,
    experts.experts_split,
    experts.shared_experts_split,
    experts.fields_belong_to_experts,
    experts.tokens_find_experts,
    experts.activations_exist,
    experts.experts_have_a_kernel,
    experts.dense_experts_are_scaled_before,
    experts.scores_reach_the_activation,
    experts.scores_are_zero_or_chosen,
    experts.rows_are_aligned,
    experts.balance_sees_all_layers,
    experts.imbalance_is_possible,
    pipeline.layers_fill_the_stages,
    pipeline.stages_have_layers,
    pipeline.stages_are_stated_once,
    pipeline.interleave_needs_pipeline,
    pipeline.schedule_needs_pipeline,
    pipeline.schedule_fits_the_chunks,
    pipeline.both_ends_share_the_work,
    context.exchange_needs_context,
    context.exchange_needs_a_fused_kernel,
    context.rings_see_everything,
    context.heads_split_over_context,
    model.layers_are_not_too_many,
    model.heads_share_keys,
    model.rotary_is_even,
    model.groups_have_names_of_their_own,
    model.groups_take_turns,
    attention.attention_has_its_own_keys,
    attention.attention_sees_one_region,
    attention.sinks_have_a_kernel,
    attention.both_directions_are_whole,
    attention.norms_find_their_heads,
    attention.norms_fit_the_residual,
    recurrence.groups_share_states,
    recurrence.states_are_whole,
    recurrence.scans_know_no_documents,
    recurrence.mixers_stand_alone,
    model.gate_and_up_are_there,
    model.transform_is_whole,
    model.bare_models_have_no_layers,
    custom.fields_belong_to_their_kind,
    custom.custom_components_are_sound,
    custom.custom_dims_split,
    custom.steps_are_of_custom_attention,
    custom.custom_dims_have_one_size,
    custom.tokens_that_see_each_other_are_together,
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
    formats.experts_of_another_format_serve,
    formats.stored_weights_are_frozen,
    formats.stored_weights_are_multiplied_wide,
    formats.quantised_weights_are_gathered,
    documents.documents_fit_their_sequence,
    documents.documents_have_a_kernel,
    blocks.models_are_of_blocks_or_of_parts,
    blocks.blocks_are_like_others,
    blocks.stems_are_sound,
    blocks.blocks_follow_each_other,
    blocks.blocks_stand_alone,
    blocks.blocks_are_replicated,
    blocks.blocks_are_rebuilt_whole,
    encoders.encoders_have_decoders,
    encoders.sources_are_stated,
    encoders.encoders_see_all,
    encoders.biases_have_a_table,
    encoders.two_sides_are_whole,
    encoders.two_sides_are_gathered_by_layer,
    encoders.shared_results_are_rebuilt_whole,
    encoders.encoders_are_trained,
    images.images_have_classes,
    images.patches_fill_the_image,
    images.class_token_sees_patches,
    images.sequences_are_images,
    images.images_are_whole,
    images.classes_have_one_row,
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
    states.update_exists,
    states.every_weight_is_updated,
    states.update_multiplies,
    states.states_are_of_a_shape,
    states.operands_are_aligned,
    states.quantised_streams_are_saved,
    states.recipes_fit_their_scales,
    states.what_is_stored_narrow_is_wide,
)
WARNINGS: tuple[Rule, ...] = (
    layout.sequence_needs_tensor,
    experts.imbalance_has_an_effect,
    offload.host_is_stated,
    offload.host_sums_wait,
    device.links_are_as_measured,
    layout.pods_share_uplinks,
    states.blocks_fit,
    documents.documents_are_shorter,
    model.sequences_are_longer_than_the_model,
    model.heads_begin_at_whole_reads,
    serving.served_sequences_are_longer_than_the_model,
    serving.engines_are_described,
    serving.caches_have_a_kernel,
    effects.what_runs_heeds_it,
    effects.kernels_find_their_parts,
    effects.counts_run_no_kernels,
    operations.losses_are_stated_whole,
    device.headroom_is_a_part,
    effects.reductions_have_partners,
    effects.groups_have_others,
    effects.others_are_left,
    effects.kept_names_exist,
    effects.adapters_are_narrow,
    formats.adapters_have_a_format,
    formats.formats_have_their_parts,
    formats.second_layouts_are_of_lasting_weights,
)


def rule_meanings() -> dict[str, str]:
    """What each rule says, in a sentence, by its name in problems."""
    return {rule.__name__: (inspect.getdoc(rule) or "").partition("\n\n")[0] for rule in (*RULES, *WARNINGS)}


def check_rules(table: tuple[Rule, ...], built: Mapping[str, Any], at: Places) -> Iterator[Problem]:
    """What the rules of a table find, as far as the parts they read could be built."""
    left_out = OF_TRAINING if built.get("serve") else ()
    known = {**{name: part for name, part in built.items() if name not in left_out}, "at": at}
    for rule in table:
        needs = parts_read(rule)
        if left_out and rule in OF_TRAINING_KERNELS:
            continue
        if all(need in known for need in needs):
            for problem in rule(**{need: known[need] for need in needs}):
                yield replace(_told(problem), rule=rule.__name__)


@cache
def parts_read(rule: Rule) -> tuple[str, ...]:
    """The parts of a plan that a rule reads: the names of its parameters."""
    return tuple(inspect.signature(rule).parameters)


def _told(problem: Problem) -> Problem:
    """A problem that is told where its value is not written says why."""
    because = problem.where.because
    return replace(problem, message=f"{problem.message} ({because})") if because else problem
