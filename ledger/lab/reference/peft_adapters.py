"""Low-rank adapters as peft itself puts them into a model, where it is installed.

Imports torch and peft at its top; import it inside functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ledger.lab.reference.absent_packages import absent
from ledger.spec.plan import Lora

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
    wanted = {id(module): lora.rank_of(target) for target, mine in modules.items() for module in mine}
    ranks = {name: wanted[id(module)] for name, module in built.named_modules() if id(module) in wanted}
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
    nn.Module.to = _stay
    try:
        with torch.device(weight.device):
            yield
    finally:
        torch.set_default_dtype(before)
        nn.Module.to = move


def _stay(module: nn.Module, *_: object, **__: object) -> nn.Module:
    """The module where it is."""
    return module
