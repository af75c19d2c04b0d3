"""Near misses: what somebody who typed a name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence

KNOWN_NAMES_PREFIX = "known: "  # begins a help line that offers no near miss
MOST_NAMES = 40  # names that a help line lists
MOST_OFFERED = 3  # near misses
LONGEST_WORD = 100  # characters of a word that a name may be near to
MOST_COMPARED = 2000  # names that a word is compared with
LEAST_BEGINNING = 3  # letters of a word that tell what it begins


def nearest(word: str, names: Sequence[str]) -> str:
    """A help line that offers the names written most like `word`, or lists all where none is near."""
    if near := closest(word, names):
        return "did you mean " + " or ".join(f"`{name}`" for name in near) + "?"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{KNOWN_NAMES_PREFIX}{', '.join(names[:MOST_NAMES])}{more}" if names else ""


def closest(word: str, names: Sequence[str]) -> list[str]:
    """The names that begin with `word`, short ones first, then those written most like it; at most three, or none."""
    if len(word) > LONGEST_WORD:
        return []
    folded = {name.lower(): name for name in names[:MOST_COMPARED]}
    begun = sorted((name for name in folded if name.startswith(word.lower())), key=len)
    begun = begun if len(word) >= LEAST_BEGINNING else []
    alike = difflib.get_close_matches(word.lower(), list(folded), n=MOST_OFFERED, cutoff=0.55)
    return [folded[name] for name in dict.fromkeys([*begun, *alike])][:MOST_OFFERED]


# --- names of fields in other tools and papers ---

ARGUMENT = "--"  # begins an argument of other tools' command lines

# What to write -> what it is called elsewhere, each word once. What to write is the path of a field, and after a colon
# the value that the words stand for. From the arguments of Megatron-LM, torchtitan, DeepSpeed, FSDP and transformers'
# Trainer, the fields of config.json, and the usual abbreviations of papers.
NAMES_ELSEWHERE: Mapping[str, str] = {
    "parallelism.data": "dp ddp data_parallel data_parallelism dp_size data_parallel_size replicas",
    "parallelism.tensor": "tp tp_size tensor_parallel tensor_parallelism tensor_parallel_degree tensor_parallel_size "
    "tensor_model_parallel_size",
    "parallelism.pipeline": "pp pp_size pipeline_parallel pipeline_parallelism pipeline_parallel_degree "
    "pipeline_parallel_size pipeline_model_parallel_size",
    "parallelism.context": "cp cp_size context_parallel context_parallelism context_parallel_degree "
    "context_parallel_size ulysses",
    "parallelism.expert": "ep ep_size expert_parallel expert_parallelism expert_parallel_degree expert_parallel_size "
    "expert_model_parallel_size",
    "parallelism.sequence": "sp sequence_parallel sequence_parallelism",
    "parallelism.interleave": "vpp vp virtual_pipeline num_virtual_stages_per_pipeline_rank",
    "parallelism.zero: 3": "fsdp fsdp2 zero3 zero_3 full_shard fully_shard",
    "parallelism.zero: 2": "zero2 zero_2 shard_grad_op",
    "parallelism.zero: 1": "zero1 zero_1 distributed_optimizer use_distributed_optimizer",
    "parallelism.zero": "zero_stage sharding",
    "parallelism.replicate": "hsdp hybrid_shard data_parallel_replicate_degree",
    "parallelism.shard": "data_parallel_shard_degree",
    "parallelism.reshard": "reshard_after_forward",
    "parallelism.offload": "cpu_offload",
    "parallelism.schedule": "pipeline_schedule",
    "parallelism": "parallel mesh layout strategy",
    "run.global_batch": "gbs batch batch_size global_batch_size train_batch_size gradient_accumulation_steps "
    "grad_accum gradient_accumulation",
    "run.micro_batch": "mbs micro_batch_size microbatch microbatch_size local_batch_size device_batch_size "
    "per_device_train_batch_size train_micro_batch_size_per_gpu",
    "run.seq_len": "seq seqlen seq_length sequence sequence_length block_size context_length ctx",
    "run.tokens": "train_tokens num_tokens total_tokens n_tokens",
    "run": "training train_args",
    "cluster.devices": "gpus num_gpus n_gpus ngpus nproc world_size num_devices n_devices chips nodes nnodes "
    "num_nodes n_nodes",
    "cluster.devices_per_node": "gpus_per_node nproc_per_node local_world_size node_size",
    "cluster.scaleout": "network interconnect infiniband",
    "accelerator": "gpu device hardware gpu_type chip",
    "accelerator.memory": "hbm vram memory_size",
    "accelerator.scaleup": "nvlink nvlink_bandwidth",
    "accelerator.bandwidth": "memory_bandwidth hbm_bandwidth",
    "accelerator.peak": "flops peak_flops tflops",
    "accelerator.power": "tdp watts",
    "precision": "dtype mixed_precision torch_dtype number_format",
    "precision: bf16-mixed": "bf16",
    "precision: fp16-mixed": "fp16",
    "precision: fp8-mixed": "fp8",
    "optimizer": "optim optimiser optimizer_name",
    "optimizer: adam": "adam",
    "optimizer: adamw": "adamw",
    "optimizer: muon": "muon",
    "recompute": "activation_checkpointing gradient_checkpointing checkpointing activation_checkpoint remat "
    "recomputation recompute_granularity ac",
    "stack": "framework software backend library",
    "stack: pytorch-fsdp2-compile-2025": "compile torch_compile",
    "kernels.attention: flash": "flash flash_attention use_flash_attn attn_implementation",
    "plan": "title description",
    "spec": "version",
    "assumptions.price": "cost",
    "assumptions.mfu": "utilization utilisation",
    "assumptions.headroom": "memory_headroom",
    "assumptions.power_usage_effectiveness": "pue",
    "assumptions.price.per_device_hour": "per_hour hourly usd_per_hour per_gpu_hour price_per_hour gpu_hour usd",
    "train.lora": "lora peft adapters",
    "train.frozen": "freeze trainable",
    "train.lora.rank": "r lora_rank",
    "train.lora.targets": "target_modules",
    "model.d_model": "hidden_size hidden n_embd d_hidden dim width embed_dim",
    "model.vocab": "vocab_size vocabulary n_vocab padded_vocab_size",
    "model.parameters": "params num_parameters n_params model_size",
    "model.max_seq_len": "max_position_embeddings n_positions max_seq_length n_ctx",
    "model.embedding.tied": "tie_word_embeddings tied tie_embeddings",
    "model.layers.0.repeat": "num_hidden_layers num_layers n_layers n_layer depth",
    "model.layers.0.attention.heads": "num_attention_heads num_heads n_heads n_head",
    "model.layers.0.attention.kv_heads": "num_key_value_heads n_kv_heads num_query_groups num_kv_heads",
    "model.layers.0.attention.head_dim": "kv_channels d_head head_size",
    "model.layers.0.attention.window": "sliding_window window_size",
    "model.layers.0.mlp.d_ff": "intermediate_size ffn d_mlp ffn_dim ffn_hidden_size hidden_dim n_inner",
    "model.layers.0.mlp.activation": "hidden_act act activation_function",
    "model.layers.0.mlp.experts": "num_experts n_experts num_local_experts n_routed_experts",
    "model.layers.0.mlp.top_k": "num_experts_per_tok topk moe_router_topk",
    "run.documents": "packed packing sample_packing packed_sequence packed_sequences padding_free document_length",
    "expect": "expect_parameters expectations assert asserts",
}
SYNONYMS: Mapping[str, str] = {word: written for written, words in NAMES_ELSEWHERE.items() for word in words.split()}


def meant(key: str, keys: Collection[str]) -> str:
    """A help line with the field that a word of other tools means; empty where it is no such word.

    A field of the mapping itself, whose keys are `keys`, is named alone; any other by its path in a plan.
    """
    path, value = target(key)
    if not path:
        return ""
    outer, _, name = path.rpartition(".")
    entry = f"{name}: {value}" if value else name
    if name in keys:
        return f"did you mean `{entry}`?"
    in_one_line = f"{outer}: {{{entry}}}" if outer else entry
    return f"did you mean `{in_one_line if value else path}`?"


def target(word: str) -> tuple[str, str]:
    """The path that a word of other tools stands for, and the value where it stands for one; empty texts else."""
    folded = word.strip().removeprefix(ARGUMENT).lower().replace("-", "_").replace(" ", "_")
    path, _, value = SYNONYMS.get(folded, "").partition(": ")
    return path, value
