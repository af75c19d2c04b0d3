"""Low-rank adapters beside the weights of contractions (Hu et al. 2021): y = x W + s (x A) B, where A and B learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import sympy

from ledger.model import dtypes
from ledger.model.dims import Dim, dim, symbol
from ledger.model.modules import Module
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import COPY, DROPOUT
from ledger.spec.plan import Lora
from ledger.spec.windows import terms

if TYPE_CHECKING:
    from ledger.model.tape import Tape


def adapts(lora: Lora | None, module: Module) -> bool:
    """Whether a module has an adapter: targets are names of modules within their components."""
    return lora is not None and module.name in lora.targets


def rank_dim(lora: Lora, target: str) -> Dim:
    """The dim between the two factors of a target's adapter; of ranks by target each has a letter of its own: `r_q`."""
    if isinstance(lora.rank, Mapping):
        return Dim("rank", sympy.Symbol(f"{symbol('rank')}_{target}", positive=True, integer=True))
    return dim("rank")


def adapted(tape: Tape, module: Module, einsum: str, operands: tuple[Tensor, Tensor], result: Tensor) -> Tensor:
    """The result of a contraction with that of its adapter added, operation by operation as peft's `lora.Linear` runs.

    The contracted dims of the weight go into the rank, and the rank into those of its result. Where there is dropout,
    each adapter reads a copy of its input, and the mask of that waits for backward.
    """
    x, weight = operands
    if (lora := tape.lora) is None:
        raise TypeError(f"{module} has an adapter, but the plan has none")
    if dtypes.is_stored_only(weight.dtype) and dtypes.size(weight.dtype) < 1:
        # peft, tuners/lora/bnb.py, Linear4bit.forward: `result.clone()`
        result = tape.pointwise(f"{module}.copy", result, kernel=COPY, add=True)
    if lora.dropout:
        name = f"{module}.lora_dropout"
        mask = Tensor(f"{name}.mask", x.dims, "bool", "mask", x.split)
        x = tape.pointwise(name, x, kernel=DROPOUT, flops=2, extras=[mask])
    first, second, out = terms(einsum)
    inner, outer = [n for n in second if n not in out], [n for n in second if n in out]
    kept, sizes = [n for n in first if n not in inner], (*weight.dims, rank_dim(lora, module.name))
    down, up = (replace(module, name=f"{module.name}.{factor}", adapter=True) for factor in ("lora_a", "lora_b"))
    narrow = tape.linear(down, _einsum(first, ["rank", *inner], [*kept, "rank"]), x, sizes=sizes)
    into = _einsum([*kept, "rank"], [*outer, "rank"], out)
    wide = tape.linear(up, into, narrow, lead=len(outer), sizes=sizes)
    scaled = tape.pointwise(f"{module}.lora_scale", wide)
    return tape.pointwise(f"{module}.lora_add", result, scaled, dtype=result.dtype, add=True)


def _einsum(first: Sequence[str], second: Sequence[str], out: Sequence[str]) -> str:
    return f"{' '.join(first)}, {' '.join(second)} -> {' '.join(out)}"
