"""Writing products of quantised operands down: what is quantised for them, and for how many of them at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import sympy

from ledger.model import dtypes, moves
from ledger.model.contraction import Contraction, Grouped
from ledger.model.operations import ONE
from ledger.model.quantised import (
    ALL,
    PASSING,
    STAYING,
    Copies,
    Quantise,
    Quantised,
    QuantisedGather,
    QuantisedGroups,
    copied,
    read,
)
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import QUANTISE, KernelClass
from ledger.spec.recipe import WHOLE_TENSOR, Recipe

if TYPE_CHECKING:
    from ledger.model.tape import Tape


def gathered_narrow(tape: Tape, recipe: Recipe) -> bool:
    """Whether a share of a sequence is quantised, gathered so, and gathered again in backward."""
    return tape.layout.regather and recipe.gathers == "quantised" and recipe.saves == "quantised"


def unheld(tape: Tape, tensor: Tensor, axes: set[str]) -> Tensor:
    """A tensor as it would be whole in its own dtype, which it is on no device: its gradient alone is."""
    clash = moves.clashing(tape, tensor, axes)
    rest = tuple(pair for pair in tensor.split if pair not in clash)
    return tensor.on(rest, f"{tensor.name}.gathered_quantised")


def narrowed(
    tape: Tape,
    plain: Contraction,
    recipe: Recipe,
    parts: tuple[sympy.Expr, sympy.Expr] = ALL,
    held: Tensor | None = None,
) -> Quantised:
    """The same contraction of quantised operands; the kernels that quantise them are written on the tape.

    `held` is the share of the first operand that is quantised, gathered, and kept for backward to gather it again.
    """
    parts = parts if recipe.gathers == "quantised" else ALL
    shared = tape.stack.compiled or parts[0] != ONE
    (left, right), (inputs, weights) = plain.inputs[:2], _operands(plain, recipe, shared=shared)
    keeps, stays = recipe.saves == "quantised", recipe.lasts
    if held is None:
        _write(tape, left, inputs, recipe, both=keeps, part=parts[0])
        kept = inputs.backward if keeps else (left,)
    else:
        kept = _gathered(tape, plain, recipe, held, inputs)
    if recipe.weights != "gathered":
        _write(tape, right, weights, recipe, both=stays and not recipe.turns, once=stays)
    held_for_backward = weights.forward if recipe.turns else weights.backward if stays else (right,)
    saves = (*kept, *held_for_backward, *plain.saves[2:])
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
        share=kept if held is not None else (),
    )


def _gathered(tape: Tape, plain: Contraction, recipe: Recipe, held: Tensor, whole: Copies) -> tuple[Tensor, ...]:
    """Quantises a share and gathers it: what is kept of it.

    One scale a tensor serves rows and columns, so backward gathers the same bytes again and turns them; else the
    share's columns are kept, and gathered in backward (Transformer Engine, module/layernorm_linear.py).
    """
    left = plain.inputs[0]
    axis = next(axis for name, axis in held.split if (name, axis) not in left.split)
    share = _operands(replace(plain, inputs=(held, *plain.inputs[1:])), recipe, shared=True)[0]
    turned = recipe.activation_block == WHOLE_TENSOR
    _write(tape, held, share, recipe, both=not turned)
    key = (whole.forward[0].name, PASSING)
    if key not in tape.moved:
        tape.moved[key] = whole.forward[0]
        name, made = f"{held.name}.all_gather_quantised", whole.forward
        gather = QuantisedGather(
            name,
            KernelClass("all_gather"),
            share.forward,
            made,
            collective="all_gather",
            axis=axis,
            originals=(held, left),
        )
        tape.record(replace(gather, block=held.block))
    return share.forward if turned else share.backward


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
    role = "weight" if recipe.weights == "gathered" else STAYING if recipe.lasts else PASSING
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
