"""What of a torchtitan job is in a plan, what no plan says anything of, and what is left out and told.

Settings: pytorch/torchtitan, torchtitan/config_manager.py of 2024 and torchtitan/config/job_config.py of 2025.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ledger.spec.imports.parts import BY_HAND
from ledger.spec.imports.torchtitan.job import MESH, TorchtitanJob
from ledger.spec.problems import Problem

CARRIED = frozenset(
    """
    activation_checkpoint.mode activation_checkpoint.selective_ac_option compile.components compile.enable
    float8.enable_float8_linear float8.enable_fsdp_float8_all_gather float8.recipe_name job.description
    model.converters model.flavor model.name
    mx.recipe_name optimizer.fused optimizer.implementation optimizer.name
    quantize.linear.float8.enable_fsdp_float8_all_gather quantize.linear.float8.recipe_name
    quantize.linear.mx.recipe_name training.batch_size training.compile training.dtype training.enable_cpu_offload
    training.enable_float8_linear training.enable_fp8_linear training.global_batch_size training.local_batch_size
    training.mixed_precision_param training.mixed_precision_reduce training.seq_len training.steps
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
OF_THE_MESH = frozenset(
    """
    context_parallel_degree context_parallel_rotate_method data_parallel_degree data_parallel_replicate_degree
    data_parallel_shard_degree disable_loss_parallel enable_async_tensor_parallel expert_parallel_degree
    fsdp_reshard_after_forward
    pipeline_parallel_degree pipeline_parallel_first_stage_less_layers pipeline_parallel_last_stage_less_layers
    pipeline_parallel_layers_per_stage pipeline_parallel_microbatch_size pipeline_parallel_microbatches
    pipeline_parallel_schedule tensor_parallel_degree
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
# Sections and settings that change no total of a plan: what is written down, watched, loaded, learned.
UNRELATED = tuple(
    """
    checkpoint comm debug job lr_scheduler memory_estimation metrics model.hf_assets_path
    model.print_after_conversion model.tokenizer_path optimizer.beta1 optimizer.beta2 optimizer.eps optimizer.lr
    optimizer.weight_decay profiling training.dataset training.dataset_path training.deterministic training.gc_debug
    training.gc_freq training.max_norm training.seed training.warmup_steps validation
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
# values of what is switched off
SWITCHED_OFF: tuple[Any, ...] = (False, 0, "", [], None, "none", "default", ["output"], ["output", "router.gate"])
WHY: Mapping[str, str] = {
    "expert_tensor_parallel_degree": "experts of a plan are cut like the rest of a layer",
    "memory_budget": "`recompute:` names what is rebuilt, not how much memory it may take",
    "per_op_sac_force_recompute_mm_shapes_by_fqns": "every second product is kept, whatever its shape",
    "precompute_float8_dynamic_scale_for_fsdp": "scales of gathered weights are found weight by weight",
    "filter_fqns": "`precision: {matmul: {keep: [...]}}` names what stays as it is",
    "module_fqns_per_model_part": "`parallelism: {stages: [...]}` lists the layers of each stage",
    "pipeline_parallel_split_points": "`parallelism: {stages: [...]}` lists the layers of each stage",
    "early_step_in_backward": "a plan updates after backward is over",
}


def settings_left_out(job: TorchtitanJob) -> Iterator[Problem]:
    """Every setting that may change a total and is not in the plan, with its line."""
    for key, value in job.settings.items():
        section, _, last = key.partition(".")
        known = key in CARRIED or (section in MESH and last in OF_THE_MESH)
        unrelated = any(key == name or key.startswith(f"{name}.") for name in UNRELATED)
        if not known and not unrelated and value not in SWITCHED_OFF:
            help_text = WHY.get(key.rpartition(".")[2], BY_HAND)
            yield Problem(job.place(key), f"`{key}` is not carried over", help_text)
