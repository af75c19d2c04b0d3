"""Low-rank adapters beside the weights of contractions (Hu et al. 2021): y = x W + s (x A) B, where A and B learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.model.dims import dim
from ledger.model.tensors import Tensor
from ledger.spec.plan import Lora

if TYPE_CHECKING:
    from ledger.model.tape import Tape


def adapts(lora: Lora | None, name: str) -> bool:
    """Whether the contraction of this name has an adapter."""
    return lora is not None and name.rsplit("/", maxsplit=1)[-1] in lora.targets


def adapted(tape: Tape, name: str, einsum: str, operands: tuple[Tensor, Tensor], result: Tensor) -> Tensor:
    """The result of a contraction with that of its adapter added, operation by operation as peft's `lora.Linear` runs.

    The contracted dims of the weight go into the rank, and the rank into those of its result.
    """
    x, weight = operands
    terms, out = einsum.split("->")
    first, second = (term.split() for term in terms.split(","))
    inner = [n for n in second if n not in out.split()]
    outer = [n for n in second if n in out.split()]
    table = {d.name: d for d in weight.dims}
    rank = dim("rank")
    into = tape.weight(f"{name}.lora_a.weight", (rank, *(table[n] for n in inner)))
    back = tape.weight(f"{name}.lora_b.weight", (*(table[n] for n in outer), rank), lead=len(outer))
    kept = [n for n in first if n not in inner]
    narrow = tape.contract(f"{name}.lora_a", f"{_terms(first)}, rank {_terms(inner)} -> {_terms(kept)} rank", x, into)
    wide = tape.contract(f"{name}.lora_b", f"{_terms(kept)} rank, {_terms(outer)} rank -> {out.strip()}", narrow, back)
    scaled = tape.pointwise(f"{name}.lora_scale", wide)
    return tape.pointwise(f"{name}.lora_add", result, scaled, dtype=result.dtype, add=True)


def _terms(names: list[str]) -> str:
    return " ".join(names)
