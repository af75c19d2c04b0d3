"""Rules on optimizers and on quantised operands: what updates which weight, and what fits which format."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.optimizer import WEIGHT_KINDS, Optimizer
from ledger.spec.places import Places, multiples
from ledger.spec.plan import Accelerator, Kernels, Model, Parallelism, Precision, Run
from ledger.spec.problems import Problem
from ledger.spec.recipe import HALF, WHOLE_TENSOR
from ledger.spec.rules.device import peak_key


def update_exists(optimizer: Optimizer, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """The optimizer has the implementation that the plan names; what the stack prefers gives way by itself."""
    there = optimizer.implementations()
    if there and kernels.optimizer not in there:
        message = f"{optimizer.title or optimizer.name} has no {kernels.optimizer} update"
        yield Problem(at("kernels.optimizer"), message, f"it has {', '.join(there)}")


def every_weight_is_updated(optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """What a rule does not update, another does."""
    rule, place = optimizer, "optimizer"
    while rule.otherwise is not None:
        rule, place = rule.otherwise, f"{place}.otherwise"
    left = [kind for kind in WEIGHT_KINDS if kind not in rule.weights]
    if left:
        message = f"nothing updates the {' and '.join(left)}: {rule.title} is for {' and '.join(rule.weights)}"
        yield Problem(at(f"{place}.weights"), message, "`otherwise: adamw` updates the rest")


def update_multiplies(optimizer: Optimizer, accelerator: Accelerator, at: Places) -> Iterator[Problem]:
    """The accelerator multiplies in the dtype of the products that an update is made of."""
    schulz = optimizer.newton_schulz
    if schulz is not None and peak_key(schulz.dtype) not in accelerator.peak:
        message = f"{accelerator.title} has no {schulz.dtype} peak, and {optimizer.title} multiplies in it"
        yield Problem(at("optimizer.newton_schulz.dtype"), message, f"it has {', '.join(accelerator.peak)}")


def states_are_of_a_shape(optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """Scales belong to blocks of whole states."""
    for name, state in optimizer.states.items():
        odd = sorted(set(state.shapes.values()) - {"whole"})
        if state.scales is not None and odd:
            message = f"`{name}` has scales for blocks of {state.scales.block}, but is {' and '.join(odd)}"
            yield Problem(at(f"optimizer.states.{name}.scales"), message, "only `shape: whole` is cut into blocks")


# --- quantised operands -------------------------------------------------------------------------

ALIGNED = 16  # bytes: torch._scaled_mm and cuBLASLt multiply 8-bit matrices whose sides are multiples of this
PACKED = {"e2m1": 2}  # elements of a byte


def operands_are_aligned(
    model: Model, precision: Precision, parallelism: Parallelism, run: Run, at: Places
) -> Iterator[Problem]:
    """Every side of a quantised product is a multiple of 16 bytes on each device."""
    recipe = precision.matmul
    if recipe is None or model.bare:
        return
    step = ALIGNED * PACKED.get(recipe.format, 1)
    tokens = run.micro_batch * run.seq_len // parallelism.context
    sizes = {"run.seq_len": ("tokens of a micro-batch", tokens), "model.d_model": ("d_model", model.d_model)}
    for group in model.groups:
        attention, path = group.attention, f"model.layers.{group.name}"
        if not attention.expanded and not recipe.leaves("attention", group.name):
            for field, count in attention.split_heads.items():
                width = count * attention.head_dim // parallelism.tensor
                sizes[f"{path}.attention.{field}"] = f"{field} x head_dim of `{group.name}`", width
        if not recipe.leaves("mlp", group.name):
            width = group.mlp.d_ff // parallelism.tensor
            sizes[f"{path}.mlp.d_ff"] = f"d_ff of `{group.name}`", width
    for path, (name, size) in sizes.items():
        if size % step:
            message = f"{name} = {size} on a device: {recipe.format} matmuls need multiples of {step}"
            yield Problem(at(path), message, multiples(size, step))


def blocks_fit(model: Model, precision: Precision, at: Places) -> Iterator[Problem]:
    """A width that blocks do not divide ends in a short block, which has a scale of its own."""
    recipe = precision.matmul
    if recipe is None or model.bare:
        return
    block = max(recipe.activation_block[1], recipe.weight_block[1])
    if block > 1 and model.d_model % block:
        message = f"d_model = {model.d_model} is no multiple of blocks of {block}: the last block is padded"
        yield Problem(at("model.d_model"), message, multiples(model.d_model, block))


def quantised_streams_are_saved(precision: Precision, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Where a sequence is gathered before it is quantised, backward keeps the copies of the gathered one."""
    recipe = precision.matmul
    quantised = recipe is None or (recipe.gathers, recipe.saves) == ("quantised", "quantised")
    if not quantised and parallelism.tensor > 1 and parallelism.sequence == "regather":
        message = "sequence = regather with matmuls that quantise what was gathered: backward keeps those copies"
        help_ = "`sequence: save_gathered` or `off`, or a precision with `matmul: {gathers: quantised}`"
        yield Problem(at("parallelism.sequence"), message, help_)


def what_is_stored_narrow_is_wide(precision: Precision, at: Places) -> Iterator[Problem]:
    """Activations that wait for backward in another format have 16 bits before."""
    if precision.stored and precision.compute not in HALF:
        message = f"`stored` narrows activations of 16 bits, but the precision computes in {precision.compute}"
        yield Problem(at("precision.stored"), message, "a precision that computes in bf16, or leave it out")


def recipes_fit_their_scales(precision: Precision, at: Places) -> Iterator[Problem]:
    """One layout serves both passes only where a transposed matrix has the same scales."""
    recipe = precision.matmul
    if recipe is None:
        return
    if recipe.layouts == "one" and (recipe.activation_block, recipe.weight_block) != (WHOLE_TENSOR, WHOLE_TENSOR):
        message = "layouts = one with scales of rows or blocks: backward contracts the other side"
        yield Problem(at("precision.matmul.layouts"), message, "`layouts: both`, or one scale a tensor")
    if recipe.history and (recipe.activation_block, recipe.weight_block) != (WHOLE_TENSOR, WHOLE_TENSOR):
        message = "delayed scaling with scales of rows or blocks"
        yield Problem(at("precision.matmul.scales.history"), message, "leave `history` out, or one scale a tensor")
