"""Writing products of quantised operands down: what is quantised for them, and for how many of them at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import sympy

from ledger.model import dtypes
from ledger.model.contraction import Contraction, Grouped
from ledger.model.operations import ONE
from ledger.model.quantised import ALL, PASSING, STAYING, Copies, Quantise, Quantised, QuantisedGroups, copied, read
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import QUANTISE
from ledger.spec.recipe import Recipe

if TYPE_CHECKING:
    from ledger.model.tape import Tape


def narrowed(tape: Tape, plain: Contraction, recipe: Recipe, parts: tuple[sympy.Expr, sympy.Expr] = ALL) -> Quantised:
    """The same contraction of quantised operands; the kernels that quantise them are written on the tape."""
    parts = parts if recipe.gathers == "quantised" else ALL
    shared = tape.stack.compiled or parts[0] != ONE
    (left, right), (inputs, weights) = plain.inputs[:2], _operands(plain, recipe, shared=shared)
    keeps, stays = recipe.saves == "quantised", recipe.weights == "kept"
    _write(tape, left, inputs, recipe, both=keeps, part=parts[0])
    _write(tape, right, weights, recipe, both=stays, once=stays)
    saves = (*(inputs.backward if keeps else (left,)), *(weights.backward if stays else (right,)), *plain.saves[2:])
    kind = QuantisedGroups if isinstance(plain, Grouped) else Quantised
    return kind(
        plain.name,
        replace(plain.kernel, variant=dtypes.rate(recipe.format)),
        (inputs.forward[0], weights.forward[0], *plain.inputs[2:]),
        plain.outputs,
        saves,
        einsum=plain.einsum,
        density=plain.density,
        copies=plain.copies,
        originals=(left, right),
        narrow=(inputs, weights),
        recipe=recipe,
        parts=parts,
    )


def _operands(plain: Contraction, recipe: Recipe, *, shared: bool) -> tuple[Copies, Copies]:
    """Copies of both operands.

    One that stays for backward, or that is gathered, is made once for all contractions that read the tensor, as where
    their weights are one matrix; so is what is compiled, since equal subexpressions are one (torch/_functorch/
    partitioners.py, fx_graph_cse). Else each has its own.
    """
    first, second, out = plain.terms()
    left, right = plain.inputs[:2]
    contracted = tuple(d for d in first if d in second and d not in out)
    rows, columns = (
        tuple(d for d in own if d in out and d not in other) for own, other in ((first, second), (second, first))
    )
    own = left if recipe.saves == "quantised" or shared else replace(left, name=f"{plain.name}.input")
    role = STAYING if recipe.weights == "kept" else PASSING
    return (
        copied(own, recipe.format, recipe.activation_block, (contracted, rows), recipe),
        copied(right, recipe.format, recipe.weight_block, (contracted, columns), recipe, role),
    )


def _write(  # noqa: PLR0913 - the arguments are the facts of one kernel
    tape: Tape,
    tensor: Tensor,
    copies: Copies,
    recipe: Recipe,
    *,
    both: bool,
    once: bool = False,
    part: sympy.Expr = ONE,
) -> None:
    made = copies.both() if both else copies.forward
    key = (made[0].name, PASSING)
    if key not in tape.moved:
        tape.moved[key] = made[0]
        tape.record(
            Quantise(f"{copies.of}.quantise", QUANTISE, (tensor,), made, reads=read(recipe, made), part=part, once=once)
        )
