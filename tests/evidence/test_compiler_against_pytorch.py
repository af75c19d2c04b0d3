"""Parameters and FLOPs: the compiler's against PyTorch's own counts on meta tensors, to the integer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.books.results import Compiled
from ledger.evidence.flop_counts import flop_counts, parameter_count  # only where torch is installed
from ledger.evidence.reference_model import workload
from ledger.spec.imports.huggingface.config import import_text
from tests.invented_configs import LLAMA_4
from tests.model import plans

LIBRARY = Path(__file__).parents[2] / "specs" / "models"
MODELS = sorted(path.stem for path in LIBRARY.glob("*.yaml"))
CORES = ("flash", "math", "eager")

# Sizes are distinct primes wherever the class allows: two that were swapped would give another count.
INVENTED: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "n_embd": 7 * 13, "n_head": 7, "n_layer": 3, "n_positions": 53, "vocab_size": 211},
    "gpt2 untied, own width": {
        "model_type": "gpt2",
        "n_embd": 5 * 11,
        "n_head": 5,
        "n_layer": 2,
        "n_positions": 61,
        "n_inner": 101,
        "vocab_size": 223,
        "tie_word_embeddings": False,
    },
    "gpt_neox": {
        "model_type": "gpt_neox",
        "hidden_size": 3 * 16,
        "num_attention_heads": 3,
        "num_hidden_layers": 5,
        "intermediate_size": 103,
        "vocab_size": 227,
    },
    "gpt_neox, one after the other": {
        "model_type": "gpt_neox",
        "hidden_size": 7 * 8,
        "num_attention_heads": 7,
        "num_hidden_layers": 2,
        "intermediate_size": 107,
        "vocab_size": 229,
        "use_parallel_residual": False,
    },
    "llama, own head size": {
        "model_type": "llama",
        "hidden_size": 6 * 17,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 26,
        "intermediate_size": 109,
        "num_hidden_layers": 3,
        "vocab_size": 233,
    },
    "llama, biases, tied": {
        "model_type": "llama",
        "hidden_size": 10 * 14,
        "num_attention_heads": 10,
        "num_key_value_heads": 5,
        "intermediate_size": 113,
        "num_hidden_layers": 2,
        "vocab_size": 239,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "mistral, multi-query": {
        "model_type": "mistral",
        "hidden_size": 89,
        "num_attention_heads": 16,
        "num_key_value_heads": 1,
        "head_dim": 22,
        "intermediate_size": 131,
        "num_hidden_layers": 2,
        "vocab_size": 251,
        "sliding_window": 19,
    },
    "qwen2": {
        "model_type": "qwen2",
        "hidden_size": 6 * 14,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "intermediate_size": 137,
        "num_hidden_layers": 7,
        "vocab_size": 257,
    },
    "qwen3": {
        "model_type": "qwen3",
        "hidden_size": 6 * 19,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 34,
        "intermediate_size": 167,
        "num_hidden_layers": 3,
        "vocab_size": 283,
    },
    "gemma3, own order": {
        "model_type": "gemma3_text",
        "hidden_size": 4 * 17,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 38,
        "intermediate_size": 173,
        "num_hidden_layers": 8,
        "vocab_size": 293,
        "sliding_window": 31,
        "sliding_window_pattern": 3,
    },
    "deepseek_v3, dense": {
        "model_type": "deepseek_v3",
        "hidden_size": 139,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
        "num_hidden_layers": 3,
        "intermediate_size": 181,
        "first_k_dense_replace": 3,
        "q_lora_rank": 53,
        "kv_lora_rank": 43,
        "qk_nope_head_dim": 22,
        "qk_rope_head_dim": 10,
        "v_head_dim": 26,
        "vocab_size": 311,
    },
    "deepseek_v2, dense, queries from the stream": {
        "model_type": "deepseek_v2",
        "hidden_size": 6 * 23,
        "num_attention_heads": 6,
        "num_hidden_layers": 2,
        "intermediate_size": 179,
        "first_k_dense_replace": 2,
        "num_experts_per_tok": 1,
        "q_lora_rank": None,
        "kv_lora_rank": 43,
        "qk_nope_head_dim": 22,
        "qk_rope_head_dim": 10,
        "v_head_dim": 26,
        "vocab_size": 307,
    },
    "gemma2, odd depth": {
        "model_type": "gemma2",
        "hidden_size": 6 * 11,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 58,
        "intermediate_size": 157,
        "num_hidden_layers": 7,
        "vocab_size": 277,
        "sliding_window": 29,
    },
    "mixtral": {
        "model_type": "mixtral",
        "hidden_size": 6 * 16,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "intermediate_size": 56,
        "num_hidden_layers": 3,
        "vocab_size": 313,
        "num_experts": 7,
        "num_experts_per_tok": 3,
    },
    "qwen2 with experts, every second layer": {
        "model_type": "qwen2_moe",
        "hidden_size": 6 * 16,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "intermediate_size": 61,
        "moe_intermediate_size": 40,
        "shared_expert_intermediate_size": 53,
        "num_hidden_layers": 4,
        "vocab_size": 317,
        "num_experts": 11,
        "decoder_sparse_step": 2,
    },
    "qwen3 with experts, some layers dense": {
        "model_type": "qwen3_moe",
        "hidden_size": 6 * 24,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 26,
        "intermediate_size": 67,
        "moe_intermediate_size": 88,
        "num_hidden_layers": 5,
        "vocab_size": 331,
        "num_experts": 13,
        "mlp_only_layers": [0, 1],
    },
    "llama4, every second layer dense": {**LLAMA_4, "no_rope_layer_interval": 3},
    "deepseek v3, one dense layer": {
        "model_type": "deepseek_v3",
        "hidden_size": 136,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
        "num_hidden_layers": 3,
        "intermediate_size": 181,
        "moe_intermediate_size": 48,
        "n_routed_experts": 16,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "first_k_dense_replace": 1,
        "q_lora_rank": 53,
        "kv_lora_rank": 43,
        "qk_nope_head_dim": 22,
        "qk_rope_head_dim": 10,
        "v_head_dim": 26,
        "vocab_size": 311,
    },
}


def imported(name: str) -> plans.Mapped:
    """The model spec that a config.json of these fields becomes."""
    spec: plans.Mapped = yaml.safe_load(import_text(json.dumps(INVENTED[name]), f"{name}.json"))
    return {key: value for key, value in spec.items() if key != "spec"}


def shallow(name: str) -> plans.Mapped:
    """A model of the library, two layers of each group deep."""
    spec = yaml.safe_load((LIBRARY / f"{name}.yaml").read_text(encoding="utf-8"))
    model = plans.layer({key: value for key, value in spec.items() if key not in {"spec", "expect"}}, repeat=2)
    return {**model, "order": [group["group"] for group in model["layers"]]} if "order" in model else model


def cores(name: str) -> tuple[str, ...]:
    """The attention kernels that run a model of the library: of those asked, only eager attention knows sinks."""
    spec = yaml.safe_load((LIBRARY / f"{name}.yaml").read_text(encoding="utf-8"))
    return ("eager",) if any(group["attention"].get("sinks") for group in spec["layers"]) else CORES


def compiled(model: str | plans.Mapped, seq_len: int, core: str = "flash", **parts: Any) -> Compiled:
    """Three sequences of a model on one device."""
    run = {"seq_len": seq_len, "micro_batch": 3, "global_batch": 3}
    spec = yaml.safe_load((LIBRARY / f"{model}.yaml").read_text(encoding="utf-8")) if isinstance(model, str) else model
    scaled = any(group["mlp"].get("router", {}).get("scales") == "input" for group in spec["layers"])
    experts = {"experts": "dense"} if scaled else {}  # all that transformers has for them
    return plans.compiled(model=model, run=run, kernels={"attention": core, **experts}, **parts)


def counted(plan: Compiled) -> tuple[int, int]:
    """FlopCounterMode's forward, and forward with backward."""
    found = flop_counts(workload(plan.plan))
    return found.forward, found.step


def predicted(plan: Compiled) -> tuple[int, int]:
    """The same two from the ledger."""
    return int(plan.totals["flops.counter.forward"]), int(plan.totals["flops.counter.step"])


@pytest.mark.parametrize("name", MODELS)
def test_parameters_and_flops_of_the_library(name: str) -> None:
    """Every model of the library, whole, has PyTorch's parameters and FLOPs, with flash attention if it can."""
    plan = compiled(name, 997, cores(name)[0])
    assert plan.totals["parameters"] == parameter_count(plan.plan.model)
    assert predicted(plan) == counted(plan)


@pytest.mark.parametrize(("name", "core"), [(name, core) for name in MODELS for core in cores(name)])
def test_flops_of_every_core_at_two_lengths(name: str, core: str) -> None:
    """Two layers of each kind at full width: linear and quadratic terms in the sequence length are both right."""
    model = shallow(name)
    for seq_len in (509, 1024):
        plan = compiled(model, seq_len, core)
        assert predicted(plan) == counted(plan)


@pytest.mark.parametrize("name", INVENTED)
def test_invented_models(name: str) -> None:
    """A configuration that nobody has published compiles to what transformers builds from it."""
    plan = compiled(imported(name), 37)
    assert plan.totals["parameters"] == parameter_count(plan.plan.model)
    assert predicted(plan) == counted(plan)


@pytest.mark.parametrize("name", ["llama, own head size", "gemma2, odd depth", "gpt2"])
def test_layout_and_recomputation_leave_the_counters_alone(name: str) -> None:
    """`flops.counter.*` describes one micro-batch of the unsharded plan, whatever the plan does with it."""
    model = imported(name)
    sharded = plans.compiled(
        model=model,
        run={"seq_len": 37, "micro_batch": 3, "global_batch": 12},
        kernels={"attention": "flash"},
        recompute="full",
        cluster={"base": "h100-400g", "devices": 2},
        parallelism={"data": 2, "zero": 3},
    )
    assert predicted(sharded) == predicted(compiled(model, 37))
