"""Which contractions a precision quantises, and what they keep of their operands."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.model.modules import Module
from ledger.model.tensors import Tensor
from ledger.spec.recipe import Recipe

if TYPE_CHECKING:
    from ledger.model.tape import Tape


def recipe_of(tape: Tape, module: Module, left: Tensor, right: Tensor) -> Recipe | None:
    """How the operands of a contraction are quantised, where they are: those of activations alone never.

    Of an operand that backward has to make anew, no copy is kept beside (Megatron-Core, `set_save_original_input`).
    """
    recipe = tape.precision.matmul
    if recipe is None or right.role != "weight":
        return None
    if recipe.leaves(tape.suffix, str(module), module.component, module.name):
        return None
    again = str(module) in recipe.quantised_again or _made_anew(tape, left)
    return replace(recipe, saves="original") if again else recipe


def _made_anew(tape: Tape, tensor: Tensor) -> bool:
    """Whether a tensor does not wait for backward as it is."""
    for operation in reversed(tape.operations):
        if any(made.storage == tensor.storage for made in operation.outputs):
            parts = set(operation.region)
            kept = any(saved.storage == tensor.storage for saved in operation.saves)
            return bool(parts & tape.discarded) or (kept and bool(parts & tape.stored))
    return False
