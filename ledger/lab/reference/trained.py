"""Frozen weights and low-rank adapters in a transformers model, as fine-tuning code sets them up.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from ledger.lab.reference.checkpoints import layers_of
from ledger.lab.reference.stored_only import absent
from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.plan import Lora, Train

TARGETS = {  # by module and attribute, in the families' own words
    "q": ("attention.q_proj",),
    "k": ("attention.k_proj",),
    "v": ("attention.v_proj",),
    "qkv": ("attention.c_attn", "attention.query_key_value", "attention.qkv_proj"),
    "out": ("attention.o_proj", "attention.c_proj", "attention.dense"),
    "gate": ("mlp.gate_proj",),
    "gate_up": ("mlp.gate_up_proj",),
    "up": ("mlp.up_proj", "mlp.c_fc", "mlp.dense_h_to_4h"),
    "down": ("mlp.down_proj", "mlp.c_proj", "mlp.dense_4h_to_h"),
}
PARTS = {
    "embedding": ("embed_tokens", "wte", "wpe", "embed_in"),
    "head": ("lm_head", "embed_out"),
    "final_norm": ("model.norm", "ln_f", "final_layer_norm"),
    "attention": ("self_attn", ".attn.", ".attention."),
    "mlp": (".mlp.",),
    "attention_norm": ("input_layernorm", ".ln_1."),
    "mlp_norm": ("post_attention_layernorm", ".ln_2."),
}


class LoraLinear(nn.Module):  # type: ignore[misc]  # torch's types are not followed
    """A frozen projection with its adapter (peft, `lora.layer.Linear`), scaled by a number."""

    def __init__(self, base: Any, lora: Lora, rank: int) -> None:
        super().__init__()
        self.base = base
        self.dropout = nn.Dropout(lora.dropout) if lora.dropout else nn.Identity()
        wide, narrow = base.weight.shape if isinstance(base, nn.Linear) else base.weight.shape[::-1]
        place = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.lora_a = nn.Linear(narrow, rank, bias=False, **place)
        self.lora_b = nn.Linear(rank, wide, bias=False, **place)

    def forward(self, hidden: Tensor) -> Tensor:
        """The projection and its correction."""
        base: Tensor = self.base(hidden)
        return base + self.lora_b(self.lora_a(self.dropout(hidden))) * 2.0


def set_up(built: Any, train: Train, dtype: Any = None) -> None:
    """Freeze what `train` does not train, and put adapters of a dtype in place; raises `NoReferenceError`."""
    if train.kind == "all":
        return
    if hasattr(built.base_model, "encoder"):
        raise NoReferenceError(f"train: {train.kind}: parts of transformers' encoders go by other names")
    if train.lora:
        built.requires_grad_(requires_grad=False)
        _put_adapters(built, train.lora, dtype)
        return
    if unknown := set(train.names) - set(PARTS):
        raise NoReferenceError(f"train: {', '.join(sorted(unknown))}: no part of a transformers model by that name")
    patterns = [pattern for name in train.names for pattern in PARTS[name]]
    for name, parameter in built.named_parameters():
        named = any(pattern in name for pattern in patterns)
        parameter.requires_grad_(named == (train.kind == "only"))


def _put_adapters(built: Any, lora: Lora, dtype: Any) -> None:
    """Adapters as peft puts them in place, where it is installed; else as this module writes them after it."""
    projections = tuple(_adapted_projections(built, lora))
    if find_spec("peft") is not None:
        modules: dict[str, list[Any]] = {}
        for target, module, name in projections:
            modules.setdefault(target, []).append(getattr(module, name))
        put_in_place(built, lora, modules, dtype)
        return
    if dtype is not None:
        raise NoReferenceError("adapters in a dtype of their own: peft puts them in place, which is not installed")
    for target, module, name in projections:
        setattr(module, name, LoraLinear(getattr(module, name), lora, lora.rank_of(target)))


def _adapted_projections(built: Any, lora: Lora) -> Iterator[tuple[str, Any, str]]:
    """Each projection that is adapted: its target, the module that has it, its name; raises `NoReferenceError`."""
    for layer in layers_of(built):
        modules = {
            "attention": next(getattr(layer, n) for n in ("self_attn", "attn", "attention") if hasattr(layer, n))
        }
        modules["mlp"] = layer.mlp
        for target in lora.targets:
            places = [path.split(".") for path in TARGETS.get(target, ())]
            projections = [(modules[part], name) for part, name in places if hasattr(modules[part], name)]
            if not projections:
                raise NoReferenceError(f"train.lora.targets: {target}: no such projection in a transformers layer")
            yield from ((target, module, name) for module, name in projections)


# --- adapters by peft, where it is installed ---

# peft imports every library whose layers it adapts. Of Transformer Engine only the Python part may be there (see
# requirements/judges.txt), which refuses to be imported without its compiled one.
with absent("transformer_engine"):
    from peft import LoraConfig, inject_adapter_in_model  # type: ignore[import-not-found,unused-ignore]


def put_in_place(
    built: Any, lora: Lora, modules: Mapping[str, Sequence[Any]], dtype: torch.dtype | None = None
) -> None:
    """Adapters beside these modules of a model, by target, on their device; the rest is frozen.

    They are in their dtype, or in the one that is named.

    As get_peft_model with `autocast_adapter_dtype=False`, whose numbers the plan states.
    """
    rank_by_module = {id(module): lora.rank_of(target) for target, adapted in modules.items() for module in adapted}
    ranks = {name: rank_by_module[id(module)] for name, module in built.named_modules() if id(module) in rank_by_module}
    first = next(iter(modules.values()))[0]
    weight = first.weight
    chosen = LoraConfig(
        r=lora.largest,
        lora_alpha=2 * lora.largest,
        rank_pattern={f"^{re.escape(name)}$": rank for name, rank in ranks.items()},
        lora_dropout=lora.dropout,
        target_modules=[*ranks],
        init_lora_weights=False,
        fan_in_fan_out=not isinstance(first, nn.Linear),  # GPT-2's Conv1D has its weight the other way around
    )
    with _born_like(weight, dtype or weight.dtype):
        inject_adapter_in_model(chosen, built)
    built.train()


@contextmanager
def _born_like(weight: torch.Tensor, dtype: torch.dtype) -> Iterator[None]:
    """Parameters are made in a dtype, on the device of a weight, and stay: fake ones cannot be moved in place."""
    before, move = torch.get_default_dtype(), nn.Module.to
    torch.set_default_dtype(dtype)
    nn.Module.to = lambda module, *_, **__: module
    try:
        with torch.device(weight.device):
            yield
    finally:
        torch.set_default_dtype(before)
        nn.Module.to = move
