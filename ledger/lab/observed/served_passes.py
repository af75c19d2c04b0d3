"""What transformers itself keeps, multiplies and reads as it answers, on meta tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ledger.lab.transformers.config import transformers_config

if TYPE_CHECKING:
    from ledger.spec.plan import Model, Serve

NAMES = {"mamba2": "cache_params"}  # of the argument that takes the cache, where it has another one
EXPERTS = ".experts."  # in the names of parameters that are there once for each expert


def built(model: Model) -> Any:
    """The model on meta tensors, in bf16, with products that FlopCounterMode knows; raises `NoReferenceError`."""
    import torch
    from transformers import AutoModelForCausalLM

    config = transformers_config(model)
    config._attn_implementation = "eager"  # noqa: SLF001 - as transformers has it
    config._experts_implementation = "batched_mm"  # noqa: SLF001 - FlopCounterMode has no formula of grouped_mm
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def pass_over(model: Any, tokens: int, cache: Any) -> None:
    """One forward pass over new tokens after those of a cache; the last is scored."""
    import torch

    new = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    with torch.no_grad():
        model(new, use_cache=True, logits_to_keep=1, **{NAMES.get(model.config.model_type, "past_key_values"): cache})


def cached_elements(model: Model, tokens: int) -> int:
    """Elements of keys and values, of latents, or of states that the cache of so many tokens has."""
    from transformers import DynamicCache, StaticCache

    one, recurs = built(model), any(group.attention.recurrent for group in model.groups)
    cache = DynamicCache(config=one.config) if recurs else StaticCache(config=one.config, max_cache_len=tokens)
    pass_over(one, tokens, cache)
    return sum(part.numel() for layer in cache.layers for part in _kept(layer))


def _kept(layer: Any) -> Sequence[Any]:
    """The tensors of a layer in a cache of transformers."""
    if hasattr(layer, "recurrent_states"):
        return [*layer.conv_states.values(), *layer.recurrent_states.values()]
    return [layer.keys, layer.values]


def pass_flops(model: Model, serve: Serve, *, decodes: bool) -> int:
    """FLOPs of a prompt after its shared prefix, or of the token after it, as FlopCounterMode counts them."""
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import DynamicCache

    one, prompt = built(model), serve.prompt.longest
    cache = DynamicCache(config=one.config)
    before, new = (prompt, 1) if decodes else (serve.prefix, prompt - serve.prefix)
    if before:
        pass_over(one, before, cache)
    with FlopCounterMode(display=False) as counter:
        pass_over(one, new, cache)
    return int(counter.get_total_flops())


def read_parameters(model: Model) -> int:
    """Parameters that one token uses: all, but for other rows of tables that are looked up and experts not chosen."""
    import torch

    one = built(model)
    tables = {name for name, part in one.named_modules() if isinstance(part, torch.nn.Embedding)}
    shares = {group.mlp.experts: group.mlp.top_k for group in model.groups if group.mlp.experts}
    head, found = one.get_output_embeddings().weight, 0
    for name, weight in one.named_parameters():
        row = weight.shape[-1] if name.rpartition(".")[0] in tables else 0
        experts = weight.shape[0] if EXPERTS in name and weight.shape[0] in shares else 0
        if row:
            found += row + (weight.numel() if weight is head else 0)
        else:
            found += weight.numel() * shares[experts] // experts if experts else weight.numel()
    return found
