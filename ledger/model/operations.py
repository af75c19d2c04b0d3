"""Operations of one device: what each computes, moves and saves, and the operations that are its gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import sympy

from ledger.model.tensors import Tensor, product

ZERO = sympy.Integer(0)
ONE = sympy.Integer(1)


def total(terms: Iterable[sympy.Expr]) -> sympy.Expr:
    """The sum of many terms in one step."""
    return sympy.Add(*terms)


@dataclass(frozen=True)
class Matmul:
    """The shape of a batched matrix product on one device, for pricing: `batch` of (m x k) by (k x n)."""

    batch: sympy.Expr
    m: sympy.Expr
    n: sympy.Expr
    k: sympy.Expr


@dataclass(frozen=True)
class Operation:
    """One kernel on one device. `name` is `component/operation`; `kernel` is the class that prices it.

    `saves` is what autograd keeps from forward to backward; `after` says whether any of it is an output, so that
    rebuilding it means running this operation, not only the ones before it.
    """

    name: str
    kernel: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    saves: tuple[Tensor, ...] = ()
    region: str = ""  # a part of a component that recompute can name
    once: bool = False  # per step, not per micro-batch (the cast of a weight that is kept for the whole step)

    @property
    def output(self) -> Tensor:
        """The main result."""
        return self.outputs[0]

    @property
    def after(self) -> bool:
        """Whether something saved only exists once this operation has run."""
        made = {tensor.storage for tensor in self.outputs}
        return any(tensor.storage in made for tensor in self.saves)

    def useful(self) -> sympy.Expr:
        """Matmul FLOPs that the result needs: masked scores are not counted."""
        return ZERO

    def masked(self) -> sympy.Expr:
        """Matmul FLOPs spent on scores that a mask throws away."""
        return ZERO

    def redone(self) -> sympy.Expr:
        """Matmul FLOPs of `useful` that repeat work of the forward pass."""
        return ZERO

    def counted(self) -> sympy.Expr:
        """Matmul FLOPs as torch's FlopCounterMode counts them: no discount for masks."""
        return ZERO

    def vector(self) -> sympy.Expr:
        """FLOPs outside the matrix units."""
        return ZERO

    def traffic(self) -> sympy.Expr:
        """Each operand is read once and the result written once."""
        return total(tensor.bytes() for tensor in (*self.inputs, *self.outputs))

    def shape(self) -> Matmul | None:
        """The matrix product behind it, where there is one."""
        return None

    def gradients(self) -> tuple[Operation, ...]:
        """The operations of the backward pass that this one gives rise to, in execution order."""
        return ()

    def shared(self) -> tuple[tuple[str, str], ...]:
        """Gradients of inputs that are no allocation of their own, each with the storage it is in."""
        return ()


def gradient(tensor: Tensor, dtype: str = "") -> Tensor:
    """The gradient of a tensor: same dims and split."""
    return replace(tensor, name=f"{tensor.name}.gradient", dtype=dtype or tensor.dtype, role="gradient", view_of="")


def handed_on(operation: Operation, *inputs: Tensor) -> tuple[tuple[str, str], ...]:
    """Inputs whose gradient is the upstream gradient itself."""
    upstream = gradient(operation.output).name
    return tuple((gradient(tensor).name, upstream) for tensor in inputs)


def differentiable(tensor: Tensor) -> bool:
    """Whether a gradient flows into this tensor."""
    return tensor.role in ("activation", "weight", "cast")


# --- contractions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contraction(Operation):
    """An einsum of two operands over named dims: 2 FLOPs for each point of the product of all dims.

    A third input is a bias that the same kernel adds. `density` is the share of the points that the result needs
    (causal masks); the kernel runs them all.
    """

    einsum: str = ""
    density: sympy.Expr = ONE

    def terms(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The dim names of both operands and of the result."""
        left, right = self.einsum.split("->")
        first, second = left.split(",")
        return tuple(first.split()), tuple(second.split()), tuple(right.split())

    def sizes(self) -> Mapping[str, sympy.Expr]:
        """Every dim's size on one device."""
        return self._sizes

    @cached_property
    def _sizes(self) -> Mapping[str, sympy.Expr]:
        first, second, _ = self.terms()
        found: dict[str, sympy.Expr] = {}
        for names, tensor in ((first, self.inputs[0]), (second, self.inputs[1])):
            for name, dim in zip(names, tensor.dims, strict=True):
                size = tensor.local(dim)
                found[name] = size if name not in found else _smaller(found[name], size)
        return found

    def points(self) -> sympy.Expr:
        """The size of the product of all dims."""
        return product(*self.sizes().values())

    def counted(self) -> sympy.Expr:
        """2 x the product of all dims."""
        return product(2, self.points())

    def useful(self) -> sympy.Expr:
        """2 x the product of all dims x the density of the mask."""
        return product(2, self.points(), self.density)

    def masked(self) -> sympy.Expr:
        """What the mask throws away."""
        return product(2, self.points(), 1 - self.density) if self.density != ONE else ZERO

    def shape(self) -> Matmul:
        """Batch dims are in all three terms, k in both operands only, m and n in one operand and the result."""
        first, second, out = self.terms()
        size = self.sizes()

        def extent(keep: Iterable[str]) -> sympy.Expr:
            return product(*[size[name] for name in keep])

        return Matmul(
            batch=extent(d for d in out if d in first and d in second),
            m=extent(d for d in out if d not in second),
            n=extent(d for d in out if d not in first),
            k=extent(d for d in first if d in second and d not in out),
        )

    def gradients(self) -> tuple[Operation, ...]:
        """The two other contractions of the same three tensors."""
        first, second, out = (" ".join(names) for names in self.terms())
        left, right = self.inputs[:2]
        upstream = gradient(self.output)
        found: list[Operation] = []
        if differentiable(left):
            found.append(self._towards(f"{out}, {second} -> {first}", (upstream, right), left, "input"))
        if differentiable(right):
            wanted = "weight" if right.role in ("weight", "cast") else "other"
            found.append(self._towards(f"{first}, {out} -> {second}", (left, upstream), right, wanted))
        found.extend(
            Pointwise(f"{self.name}.bias_gradient", "reduction", (upstream,), (gradient(bias),))
            for bias in self.inputs[2:]
        )
        return tuple(found)

    def _towards(self, einsum: str, operands: tuple[Tensor, Tensor], of: Tensor, suffix: str) -> Contraction:
        return Contraction(
            f"{self.name}.{suffix}_gradient",
            self.kernel,
            operands,
            (gradient(of),),
            einsum=einsum,
            density=self.density,
        )


def _smaller(first: sympy.Expr, second: sympy.Expr) -> sympy.Expr:
    """Where one operand is split and the other not, the product runs over the split size."""
    return second if len(second.free_symbols) > len(first.free_symbols) else first


# --- everything that is not a contraction -------------------------------------------------------


@dataclass(frozen=True)
class Pointwise(Operation):
    """Elementwise operations, reductions, casts, copies and norms: bound by what they read and write.

    `flops` is per element of the largest operand. Backward reads what was saved and the gradients of the results, and
    writes the gradients of the inputs.
    """

    flops: int = 1
    backward_kernel: str = ""

    def vector(self) -> sympy.Expr:
        """`flops` for each element of the result, or of the first operand where the result is a reduction of it."""
        widest = max((*self.inputs[:1], *self.outputs[:1]), key=lambda tensor: len(tensor.dims))
        return product(self.flops, widest.elements())

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel that reads the saved tensors and the upstream gradient and writes the gradients of its inputs."""
        wanted = tuple(gradient(tensor) for tensor in self.inputs if differentiable(tensor))
        if not wanted or self.flops == 0:
            return ()
        saved = {tensor.storage: tensor for tensor in self.saves}
        reads = (*saved.values(), gradient(self.output))
        kernel = self.backward_kernel or self.kernel
        return (Pointwise(f"{self.name}.gradient", kernel, reads, wanted, flops=2 * self.flops),)


@dataclass(frozen=True)
class Addition(Pointwise):
    """A sum: the gradient of an operand of the same shape and dtype is the upstream gradient, without a kernel."""

    def _alike(self, tensor: Tensor) -> bool:
        return tensor.dtype == self.output.dtype and tensor.elements() == self.output.elements()

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The gradients that need no kernel."""
        return handed_on(self, *[t for t in self.inputs if differentiable(t) and self._alike(t)])

    def gradients(self) -> tuple[Operation, ...]:
        """An operand of another dtype gets a cast of the upstream gradient, a smaller one a sum over the other dims."""
        upstream = gradient(self.output)
        rest = [t for t in self.inputs if differentiable(t) and not self._alike(t)]
        return tuple(
            Pointwise(
                f"{self.name}.gradient" + (f".{index}" if index else ""),
                "cast" if tensor.elements() == self.output.elements() else "reduction",
                (upstream,),
                (gradient(tensor),),
            )
            for index, tensor in enumerate(rest)
        )


@dataclass(frozen=True)
class DroppedAddition(Addition):
    """A residual addition that drops out its second operand on the way: only that operand's gradient is computed."""

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The residual stream's gradient is the upstream gradient."""
        return handed_on(self, self.inputs[0])

    def gradients(self) -> tuple[Operation, ...]:
        """The mask is read again."""
        reads, update = (*self.saves, gradient(self.output)), gradient(self.inputs[1])
        return (Pointwise(f"{self.name}.gradient", self.kernel, reads, (update,), flops=2),)


@dataclass(frozen=True)
class Lookup(Operation):
    """A one-hot contraction done as a gather: no FLOPs, and only the rows that are asked for are read."""

    def traffic(self) -> sympy.Expr:
        """The indices and the rows are read, the rows written."""
        index, _ = self.inputs
        return total((index.bytes(), product(2, self.output.bytes())))

    def gradients(self) -> tuple[Operation, ...]:
        """A dense gradient: every row is written, the rows that were used are added to."""
        index, table = self.inputs
        reads = (index, gradient(self.output))
        return (Pointwise(f"{self.name}.gradient", "embedding", reads, (gradient(table),)),)


@dataclass(frozen=True)
class FusedAttention(Operation):
    """Scores, softmax and context in one kernel: FLOPs of its parts, only external traffic.

    `parts` are the two contractions inside; a kernel that skips masked blocks runs only `density` of them. The
    backward kernel rebuilds the scores, so it runs five contractions, of which one is redone work.
    """

    parts: tuple[Contraction, ...] = ()
    skips: bool = True  # masked blocks are not computed
    density: sympy.Expr = ONE

    def useful(self) -> sympy.Expr:
        """The FLOPs of both contractions that the mask leaves."""
        return total(part.useful() for part in self.parts)

    def masked(self) -> sympy.Expr:
        """Nothing where masked blocks are skipped."""
        return ZERO if self.skips else total(part.masked() for part in self.parts)

    def counted(self) -> sympy.Expr:
        """Both contractions over the full square."""
        return total(part.counted() for part in self.parts)

    def shape(self) -> Matmul:
        """The scores: batch of (queries x head_dim) by (head_dim x keys)."""
        return self.parts[0].shape()

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel of five contractions."""
        query, key, value = self.inputs[:3]
        reads = (*self.saves, gradient(self.output))
        writes = tuple(gradient(tensor) for tensor in (query, key, value))
        name = f"{self.name}.gradient"
        kernel = self.kernel.replace(".forward", ".backward")
        return (AttentionBackward(name, kernel, reads, writes, forward=self),)


@dataclass(frozen=True)
class AttentionBackward(Operation):
    """The backward kernel of fused attention: the gradients of both contractions, and the scores once more."""

    forward: FusedAttention = field(kw_only=True)

    def useful(self) -> sympy.Expr:
        """Twice the forward FLOPs, and the scores."""
        return total((product(2, self.forward.useful()), self.redone()))

    def redone(self) -> sympy.Expr:
        """The scores, rebuilt."""
        return self.forward.parts[0].useful()

    def masked(self) -> sympy.Expr:
        """Nothing where masked blocks are skipped."""
        if self.forward.skips:
            return ZERO
        return total((product(2, self.forward.masked()), self.forward.parts[0].masked()))

    def counted(self) -> sympy.Expr:
        """Five contractions over the full square."""
        return total((product(2, self.forward.counted()), self.forward.parts[0].counted()))

    def shape(self) -> Matmul:
        """The scores."""
        return self.forward.shape()


# --- communication ------------------------------------------------------------------------------

# What runs in backward where this ran in forward.
ADJOINT = {
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "all_reduce": "none",
    "none": "all_reduce",
    "send": "send",
}


@dataclass(frozen=True)
class Collective(Operation):
    """A transfer over one mesh axis. `none` marks a value that all its devices use: only its gradient is summed."""

    collective: str = ""
    axis: str = ""

    def payload(self) -> sympy.Expr:
        """Bytes: output of an all-gather, input of a reduce-scatter or all-reduce, payload of a send."""
        return self.output.bytes() if self.collective == "all_gather" else self.inputs[0].bytes()

    def shared(self) -> tuple[tuple[str, str], ...]:
        """A value that is only marked as shared is summed in place."""
        return handed_on(self, *self.inputs) if self.collective == "none" else ()

    def gradients(self) -> tuple[Operation, ...]:
        """The adjoint transfer of the gradient, where there is one."""
        if not differentiable(self.inputs[0]):
            return ()
        adjoint = ADJOINT[self.collective]
        kernel = f"{adjoint}.{self.axis}"
        inputs, outputs = (gradient(self.output),), (gradient(self.inputs[0]),)
        return (Collective(f"{self.name}.gradient", kernel, inputs, outputs, collective=adjoint, axis=self.axis),)


def executed(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The operations that really run something."""
    for operation in operations:
        if not (isinstance(operation, Collective) and operation.collective == "none"):
            yield operation
