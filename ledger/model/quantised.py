"""Matrix products of quantised operands: the kernels that quantise, the products, and their gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import sympy

from ledger.model.causes import Purpose
from ledger.model.collectives import Collective, collective
from ledger.model.contraction import Contraction, Grouped
from ledger.model.dims import Dim
from ledger.model.elementwise import Pointwise
from ledger.model.operations import ONE, Operation, differentiable, total
from ledger.model.tensors import CeilDiv, Tensor, product
from ledger.spec.kernel_classes import ELEMENTWISE, QUANTISE, REDUCTION
from ledger.spec.precision import WHOLE_TENSOR, Recipe

FLOPS = 3  # of an element: its magnitude compared, scaled, rounded
PASSING, STAYING = "quantised", "copy"  # roles: copies that are freed, and copies of weights that last
# Slots of delayed scaling for one product: input, weight, output, and the gradients of output and input
# (Transformer Engine, pytorch/fp8.py and module/base.py: three a product in forward and two in backward)
SLOTS = 5
ROW, COLUMN = "row", "column"  # along which a copy has its scales: as forward contracts it, or along the other dim
ALL = (ONE, ONE)  # parts of an operand and of a result's gradient that are quantised here


@dataclass(frozen=True)
class Copies:
    """The copies of a quantised tensor (`of`), each with its scales: what forward multiplies, what backward does."""

    of: str
    forward: tuple[Tensor, ...]
    backward: tuple[Tensor, ...]

    def both(self) -> tuple[Tensor, ...]:
        """The copies for forward and for backward, each tensor once."""
        return tuple({tensor.name: tensor for tensor in (*self.forward, *self.backward)}.values())


@dataclass(frozen=True)
class Quantise(Operation):
    """One kernel, or one that finds the scale and one that applies it: `reads` passes over the tensor.

    What reads the copies gives the tensor its gradient, so backward has nothing to do here. `part` is the share of the
    tensor that is quantised here, before a gather brings the rest; columns are then rows that are turned.
    """

    reads: int = 1
    part: sympy.Expr = ONE

    def traffic(self) -> sympy.Expr:
        """The tensor is read, its copies are written."""
        turned = [copy for copy in self.outputs if self.part != ONE and copy.scales == COLUMN]
        row_bytes = (copy.bytes() for copy in self.outputs if copy not in turned)
        quantised = total((product(self.reads, self.inputs[0].bytes()), *row_bytes))
        return total((product(self.part, quantised), *(product(2, copy.bytes()) for copy in turned)))

    def vector(self) -> sympy.Expr:
        """A few operations on each element."""
        return product(FLOPS, self.part, self.inputs[0].elements())

    def learned(self) -> tuple[Tensor, ...]:
        """The products that read the copies give the tensor its gradient."""
        return ()


@dataclass(frozen=True)
class QuantisedGather(Collective):
    """Quantised shares of a tensor gathered: of `originals`, the share and the whole, only the gradients exist."""

    originals: tuple[Tensor, Tensor] | tuple[()] = ()

    def learned(self) -> tuple[Tensor, ...]:
        """The share as it was before it was quantised, into which the gradient flows."""
        return self.originals[:1]

    def gradients(self) -> tuple[Operation, ...]:
        """The gradient of the whole is summed, and scattered."""
        if not self.originals or not differentiable(self.originals[0]):
            return ()
        share, gathered = self.originals
        moved = collective(f"{self.name}.gradient", "reduce_scatter", self.axis, gathered.gradient, share.gradient)
        return (replace(moved, purpose=Purpose.COLUMN_INPUT_GRADIENT),)


@dataclass(frozen=True)
class Quantised(Contraction):
    """A contraction of copies: `originals` get the gradients, in their own dtype.

    `copies` of both operands; those that backward needs and forward did not leave are made by backward. `parts` of the
    first operand and of the result's gradient are quantised here, where gathers bring the rest quantised. `share`: what
    is kept of a share of the first operand, which backward gathers again.
    """

    originals: tuple[Tensor, Tensor] | tuple[()] = ()
    narrow: tuple[Copies, Copies] | tuple[()] = ()
    recipe: Recipe | None = None
    parts: tuple[sympy.Expr, sympy.Expr] = ALL
    share: tuple[Tensor, ...] = ()

    def traffic(self) -> sympy.Expr:
        """Bytes: both operands with their scales, the bias, and the result."""
        scales = (scale.bytes() for copies in self.narrow for scale in copies.forward[1:])
        return total((super().traffic(), *scales))

    def learned(self) -> tuple[Tensor, ...]:
        """The operands that gradients flow into."""
        return (*self.originals, *self.inputs[2:])

    @property
    def gathered_again(self) -> Tensor:
        """The operand that backward gathers where a share was kept: rows, or the columns that it multiplies."""
        if not self.share or not self.narrow:
            return self.inputs[0]
        return next(tensor for tensor in self.narrow[0].both() if tensor.scales == self.share[0].scales)

    def of(self, originals: tuple[Tensor, ...]) -> Quantised:
        """The product with other originals of its copies."""
        left, right = originals
        return replace(self, originals=(left, right))

    def needed(self) -> dict[str, bool]:
        """Whether each storage that may be saved is: an operand is kept for the gradient of the other one alone."""
        if not self.originals or not self.narrow:
            return {}
        (left, right), (inputs, weights) = self.originals, self.narrow
        first = {tensor.storage: differentiable(right) for tensor in (*self.share, *inputs.backward, left)}
        return {**first, **{tensor.storage: differentiable(left) for tensor in (*weights.backward, right)}}

    def gradients(self) -> tuple[Operation, ...]:
        """The upstream gradient is quantised; the two other products are of copies as well."""
        return tuple(self._gradient_steps())

    def _gradient_steps(self) -> Iterator[Operation]:
        if self.recipe is None or not self.originals or not self.narrow:
            return
        (left, right), (inputs, weights), upstream = self.originals, self.narrow, self.output.gradient
        first, second, out = (" ".join(names) for names in self.terms())
        towards = quantised_copies(
            upstream, self.recipe.gradient, self.recipe.activation_block, self._sides(), self.recipe
        )
        needs_gradient = (differentiable(left), differentiable(right))
        if not any(needs_gradient):
            return
        reads = reads_of_copies(self.recipe, towards.both())
        name = f"{self.name}.quantise_gradient"
        yield Quantise(name, QUANTISE, (upstream,), towards.both(), reads=reads, part=self.parts[1])
        if needs_gradient[0]:
            if self.recipe.turns:
                yield Quantise(f"{self.name}.turn_weight", QUANTISE, weights.forward[:1], weights.backward)
            elif not self.recipe.lasts:
                yield self._quantise_again("weight", right, weights)
            operands = towards.forward[0], weights.backward[0]
            yield from self._gradient_product(f"{out}, {second} -> {first}", operands, left, "input")
        if needs_gradient[1]:
            if self.recipe.saves == "original":
                yield self._quantise_again("input", left, inputs, self.parts[0])
            elif self.share and self.gathered_again == self.inputs[0]:
                yield Quantise(f"{self.name}.turn_input", QUANTISE, self.inputs[:1], inputs.backward)
            operands = inputs.backward[0], towards.backward[0]
            yield from self._gradient_product(f"{first}, {out} -> {second}", operands, right, "weight")
        for bias in self.inputs[2:]:
            yield Pointwise(f"{self.name}.bias_gradient", REDUCTION, (upstream,), (bias.gradient,))

    def _gradient_product(
        self, einsum: str, operands: tuple[Tensor, Tensor], of: Tensor, which: str
    ) -> Iterator[Operation]:
        """The product that gives a gradient, and what scales its result where the product itself does not."""
        product_of = self.gradient_product(einsum, operands, of, which)
        if self.recipe is None or self.recipe.scaled == "matmul":
            yield product_of
            return
        unscaled = replace(of.gradient, name=f"{self.name}.{which}_gradient.unscaled", view_of="")
        yield replace(product_of, outputs=(unscaled,))
        yield Pointwise(f"{self.name}.{which}_gradient.scale", ELEMENTWISE, (unscaled,), (of.gradient,))

    def _sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Dims of the result that the gradient of the input contracts, and those that the weight's gradient does."""
        first, second, out = self.terms()
        return tuple(d for d in out if d not in first), tuple(d for d in out if d not in second)

    def _quantise_again(self, which: str, tensor: Tensor, copies: Copies, part: sympy.Expr = ONE) -> Quantise:
        """The kernel by which backward makes copies that forward did not leave, of the tensor itself."""
        reads = 0 if part != ONE else reads_of_copies(self.recipe, copies.backward) if self.recipe else 1
        return Quantise(f"{self.name}.quantise_{which}", QUANTISE, (tensor,), copies.backward, reads=reads, part=part)


def weights_sent_quantised(operations: Iterable[Operation]) -> dict[str, str]:
    """The weights that are sent quantised, since no other copy is there to be used, each with its format."""
    return {
        operation.originals[1].name: operation.recipe.format
        for operation in operations
        if isinstance(operation, Quantised)
        and operation.originals
        and operation.recipe
        and operation.recipe.weights in ("only", "gathered")
    }


@dataclass(frozen=True)
class QuantisedGroups(Quantised, Grouped):
    """Groups of rows, each with a matrix of its own, in one kernel."""


# --- copies ---


def quantised_copies(  # noqa: PLR0913 - what a copy is of, and as what
    tensor: Tensor,
    dtype: str,
    block: tuple[int, int],
    sides: tuple[tuple[str, ...], tuple[str, ...]],
    recipe: Recipe,
    role: str = PASSING,
) -> Copies:
    """The copies of a tensor; `sides` are the dims that the products of forward and of backward contract."""
    shared = (_scale_tensor(tensor, "scale", ONE, recipe.tensor_scale, role),) if recipe.tensor_scale else ()
    forward = _copy(tensor, ROW, dtype, _scale_count(tensor, sides[0], block, recipe.padded), (recipe.scale, role))
    if recipe.layouts == "one":
        return Copies(tensor.name, (*forward, *shared), (*forward, *shared))
    second = PASSING if recipe.turns else role
    count = _scale_count(tensor, sides[1], block, recipe.padded)
    backward = _copy(tensor, COLUMN, dtype, count, (recipe.scale, second))
    return Copies(tensor.name, (*forward, *shared), (*backward, *shared))


def reads_of_copies(recipe: Recipe, copies: tuple[Tensor, ...]) -> int:
    """The number of passes over a tensor that these copies of it take."""
    return recipe.reads(frozenset(tensor.scales for tensor in copies))


def _copy(tensor: Tensor, name: str, dtype: str, scales: sympy.Expr, of: tuple[str, str]) -> tuple[Tensor, Tensor]:
    scale, role = of
    copy = replace(tensor, name=f"{tensor.name}.{name}", dtype=dtype, role=role, view_of="", scales=name)
    return copy, _scale_tensor(tensor, f"{name}.scales", scales, scale, role)


def _scale_tensor(tensor: Tensor, name: str, count: sympy.Expr, dtype: str, role: str) -> Tensor:
    return Tensor(f"{tensor.name}.{name}", (Dim("scales", count),), dtype, role)


def _scale_count(
    tensor: Tensor, contracted: tuple[str, ...], block: tuple[int, int], padded: tuple[int, int]
) -> sympy.Expr:
    """The number of scales: blocks beside what is contracted, by blocks along it; a last short one is one too."""
    if block == WHOLE_TENSOR:
        return ONE
    sides = (
        product(*[tensor.local(dim) for dim in tensor.dims if (dim.name in contracted) is inner])
        for inner in (False, True)
    )
    blocks = (CeilDiv(size, length) if length else ONE for size, length in zip(sides, block, strict=True))
    return product(*[product(step, CeilDiv(count, step)) for count, step in zip(blocks, padded, strict=True)])


def scales_along(tensor: Tensor, name: str, block: tuple[int, int]) -> Tensor:
    """The fp32 scales of a tensor whose blocks lie along its last dim."""
    count = _scale_count(tensor, (tensor.dims[-1].name,), block, (1, 1))
    return Tensor(name, (Dim("scales", count),), "fp32", PASSING)


# --- projections of one input whose weights are one matrix ---

# `projections` of a stack -> the parts of a layer in which what multiplies one input is one matrix.
JOINED: Mapping[str, tuple[str, ...]] = {"apart": (), "attention": ("attention",), "joined": ("attention", "mlp")}
# Products that have a matrix of their own whatever else reads their input: those into latents (Megatron-Core's
# linear_q_down_proj and linear_kv_down_proj, as in transformers), and that into scores of experts.
OWN_MATRIX = ("attention/q_latent", "attention/kv_latent", "mlp/router")


def is_projection(operation: Operation) -> bool:
    """Whether it multiplies by a weight, or by a copy of one."""
    return isinstance(operation, Contraction) and operation.inputs[1].role in ("weight", "cast", STAYING, PASSING)


def matrix(operation: Operation, joined: Collection[str]) -> str:
    """The name of the matrix that a projection multiplies by: its input where all weights that read it are one."""
    return operation.inputs[0].storage if is_joined(operation, joined) else operation.name


def is_joined(operation: Operation, joined: Collection[str]) -> bool:
    """Whether a projection is of one matrix with those that read the same input."""
    return operation.block in joined and operation.name not in OWN_MATRIX
