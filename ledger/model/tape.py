"""The tape: components write operations on it; it settles dtypes (the precision policy) and splits (the layout)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import sympy

from ledger.model import dtypes, moves
from ledger.model.adapters import adapted, adapts
from ledger.model.cache import Cache, served
from ledger.model.collectives import Collective
from ledger.model.contraction import Contraction, Grouped
from ledger.model.convolution import Convolution
from ledger.model.dequantised import copy_of, dequantised
from ledger.model.dims import Dim, dim, listed, symbol
from ledger.model.elementwise import Addition, Pointwise
from ledger.model.formats import stored_dtype
from ledger.model.joining import Joined, Taken
from ledger.model.layout import Layout
from ledger.model.modules import BIAS, Module, Parameter
from ledger.model.narrowing import gathered_narrow, narrowed, unheld
from ledger.model.operations import ONE, Operation
from ledger.model.recipes import recipe_of
from ledger.model.sides import Side
from ledger.model.tensors import SHARED, Split, Tensor
from ledger.spec.kernel_classes import CAST, COPY, ELEMENTWISE, KernelClass, matmul
from ledger.spec.plan import Kernels, Lora, Precision, Stack
from ledger.spec.recipe import Recipe
from ledger.spec.stack import UNSTATED_STACK
from ledger.spec.windows import has_windows, terms

OWN_SEQUENCE = Side()  # of a model that has nothing else


@dataclass(frozen=True)
class Tape:
    """Operations in execution order, the weights they use, and what was already cast or gathered.

    `suffix` tells the symbols of one layer group from another's; `region` marks a part that recompute can name, `block`
    the part of a layer (attention or mlp, each with the norm before it) that what is written belongs to. Results
    of regions that are `discarded`, and what regions that are `stored` save, do not wait for backward as they are.
    `of_loss` as in Tensor. `cache`: of a pass that serves, what keys and values wait in. `packed`: attention does not
    leave the documents of a sequence. `side`: whether it is of an encoder or a decoder, and what its layers are given.
    """

    precision: Precision
    layout: Layout
    kernels: Kernels
    suffix: str = ""
    lora: Lora | None = None
    region: tuple[str, ...] = ()
    block: str = ""
    pieces: sympy.Expr = ONE
    times: sympy.Expr = ONE
    last_dim: tuple[Dim, Dim] | None = None
    discarded: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    packed: bool = False
    stack: Stack = UNSTATED_STACK
    of_loss: bool = False
    cache: Cache | None = None
    side: Side = OWN_SEQUENCE
    operations: list[Operation] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    moved: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    casts: Counter[tuple[str, str]] = field(default_factory=Counter)  # of a tensor to a dtype

    # --- tensors ---

    def dims(self, names: str) -> tuple[Dim, ...]:
        """The dims of these names in this group."""
        return tuple(self._dim(name) for name in listed(names))

    def _dim(self, name: str) -> Dim:
        """A dim of the table of symbols; a sequence is as long as its side of the model says."""
        known = dim(name, self.suffix)
        return replace(known, symbol=symbol(self.side.length)) if name in ("seq", "key") else known

    def weight(
        self, of: Module | Parameter, names: str | tuple[Dim, ...], lead: int = 1, *, fixed: bool = False
    ) -> Tensor:
        """A parameter, of a module the one that multiplies, cut as the layout says; the same one is the same tensor.

        `fixed`: it is not trained, whatever the plan trains.
        """
        parameter = Parameter(of) if isinstance(of, Module) else of
        dims = self.dims(names) if isinstance(names, str) else names
        split = self.layout.of(dims)
        made = Tensor(str(parameter), dims, "", "weight", split, lead, parameter=parameter, block=self.block)
        made = replace(made, dtype=stored_dtype(self.precision, made), frozen=fixed)
        return self.weights.setdefault(made.name, made)

    def linear(  # noqa: PLR0913 - the arguments are the facts of one module
        self,
        module: Module,
        einsum: str,
        x: Tensor,
        *,
        bias: bool = False,
        lead: int = 1,
        sizes: Sequence[Dim] = (),
        partial: bool = False,
    ) -> Tensor:
        """A module's product with its own weight, the second operand of the einsum, and with its bias.

        `lead` as in Tensor; `sizes` are dims of its own. A bias has one dim in frameworks, and here those of the result
        that the weight has.
        """
        _, second, out = terms(einsum)
        table = {each.name: each for each in sizes}
        dims = tuple(table.get(name) or dim(name, self.suffix) for name in second)
        weight, rows = self.weight(module, dims, lead), tuple(each for each in dims if each.name in out)
        added = self.weight(Parameter(module, BIAS), rows, len(rows)) if bias else None
        return self.contract(module, einsum, x, weight, bias=added, partial=partial)

    def activation(self, name: str, dims: tuple[Dim, ...], dtype: str, split: Split = ()) -> Tensor:
        """A result of that shape in the block that is being written, whose gradient backward asks for."""
        return Tensor(name, dims, dtype, "activation", split, of_loss=self.of_loss, block=self.block)

    def record(self, operation: Operation) -> Tensor:
        """Writes an operation and hands on its main result. A transfer is in the block that makes what it moves."""
        block = operation.block if isinstance(operation, Collective) else self.block
        often = {"times": self.times, "last_dim": self.last_dim}
        written = replace(operation, region=self.region, pieces=self.pieces, block=block, **often)
        self.operations.append(written)
        return operation.output

    def inside(self, region: str) -> Tape:
        """The same tape, marking what is written as part of a region, within the one it is in."""
        return replace(self, region=(*self.region, region))

    def of_block(self, block: str) -> Tape:
        """The same tape, for a part of a layer."""
        return replace(self, block=block)

    def repeated(self, pieces: sympy.Expr) -> Tape:
        """The same tape, what is written being run in so many equal pieces, a kernel each."""
        return replace(self, pieces=pieces)

    # --- the layout ---

    @property
    def dtensor(self) -> bool:
        """Whether PyTorch's DTensor splits layers.

        It copies a sequence that it joins, and makes the gradient of all rows of a split embedding.
        """
        return self.stack.tensor_parallel == "dtensor"

    @property
    def keeps_gathered(self) -> bool:
        """Whether the sequence is cut over the devices that share a layer, as DTensor does it: gathered once."""
        return self.dtensor and self.layout.cuts_sequence and not self.layout.regather

    @property
    def routes_own(self) -> bool:
        """Whether each device sends rows of its own part of the sequence to experts, by maps of all experts.

        Of experts that devices share no device sees a token of another's part, so the sequence is cut over them.
        """
        axis = self.layout.splits.get("d_ff")
        apart = not axis or any(name == axis for _, name in self.layout.stream)
        grouped = self.kernels.experts == "grouped_mm" and self.kernels.weighing == "activation"
        return self.stack.expert_rows == "mapped" and grouped and apart

    # --- dtypes ---

    @property
    def matmul_result(self) -> str:
        """The dtype that a matmul writes: its operands', but never one of 8 bits."""
        return self.precision.activations if dtypes.size(self.precision.compute) < 2 else self.precision.compute

    def cast(self, tensor: Tensor, dtype: str, *, keep: bool = False) -> Tensor:
        """The tensor in another dtype. A weight is cast once for all its uses; `keep` shares an activation's cast.

        Autocast forgets its casts of weights after each micro-batch; without it they last for the step.
        """
        if tensor.dtype == dtype:
            return tensor
        shared = tensor.role == "weight"
        role = "cast" if shared else "activation" if tensor.role == SHARED else tensor.role
        known = self.moved.get((tensor.name, dtype))
        if known and (shared or keep):
            return known
        self.casts[tensor.name, dtype] += 1
        count = self.casts[tensor.name, dtype]
        name = f"{tensor.name}.{dtype}" + (f".{count}" if count > 1 else "")
        made = replace(tensor, name=name, dtype=dtype, role=role, view_of="", kept_before=False)
        self.moved.setdefault((tensor.name, dtype), made)
        self.record(Pointwise(f"{name}.cast", CAST, (tensor,), (made,), once=shared and not self.precision.autocast))
        return made

    # --- operations ---

    def contract(  # noqa: PLR0913 - the keywords are the facts of one contraction
        self,
        module: Module,
        einsum: str,
        left: Tensor,
        right: Tensor,
        *,
        bias: Tensor | None = None,
        density: sympy.Expr = ONE,
        dtype: str = "",
        result_dtype: str = "",
        saving: Sequence[Tensor] = (),
        grouped: bool = False,
        partial: bool = False,
        sizes: Sequence[Dim] = (),
    ) -> Tensor:
        """An einsum on the matrix units; what the layout makes necessary (gather, reduction) is written with it.

        It has the name of the module that it is part of.

        `grouped`: groups of rows, each with a matrix of its own, in one kernel. `partial`: who calls marks what is
        shared and sums the result. `dtype` is of operands and result, `result_dtype` of the result alone. `sizes`: dims
        of the result that an operand has within windows alone.
        """
        name, compute = str(module), dtype or self.precision.compute
        first, second, out = terms(einsum)
        cut = {each: axis for each, axis in self.layout.splits.items() if each in (*first, *second)}
        sums = set[str]() if partial else {cut[each] for each in first if each in cut and each not in out}
        as_stored = self.cache is not None and right.role == "weight"
        recipe = None if dtype or result_dtype or as_stored else recipe_of(self, module, left, right)
        held, (left, narrow) = left, self._gathered(left, set(cut.values()), recipe)
        operands, given = (left, right), left.dtype
        if not partial:
            left = self._used_by_all(left, held, cut, out)
        left = left if narrow else self.cast(left, compute, keep=self.cache is not None)
        inside = (self.cast(bias, compute),) if bias and not sums else ()  # before the weight, as autocast does
        stored = right if right.role == "weight" and dtypes.is_stored_only(right.dtype) and not as_stored else None
        kept = recipe or as_stored
        right = copy_of(self, right, compute) if stored else right if kept else self.cast(right, compute)
        result = self._result(name, left, right, out, result_dtype or dtype or self.matmul_result, sizes)
        saves = (moves.kept(self, left, held), right, *saving)
        kernel = matmul(dtypes.rate(compute), grouped=grouped)
        copies = self.layout.repeated(left, right, result)
        kind = Grouped if grouped else Convolution if has_windows(einsum) else Contraction
        plain = kind(
            name, kernel, (left, right, *inside), (result,), saves, einsum=einsum, density=density, copies=copies
        )
        scattered = tuple(pair for pair in self.layout.stream if pair[1] in sums)
        parts = _part(left, held), _part(result, result.on((*result.split, *scattered)))
        written = narrowed(self, plain, recipe, parts, held if narrow else None) if recipe else plain
        as_run = served(plain, self.cache) if self.cache else written
        self.record(dequantised(plain, stored) if stored else as_run)
        result = self._summed(name, result, sums, bias)
        if stored:
            result = self.cast(result, given)  # bitsandbytes, nn/modules.py, Linear4bit.forward: `.to(inp_dtype)`
        return adapted(self, module, einsum, operands, result) if adapts(self.lora, module) else result

    def _gathered(self, held: Tensor, axes: set[str], recipe: Recipe | None) -> tuple[Tensor, bool]:
        """A first operand whole over axes that cut other dims, and whether it is its quantised share that travels."""
        if recipe and gathered_narrow(self, recipe) and moves.clashing(self, held, axes):
            return unheld(self, held, axes), True
        return moves.whole(self, held, axes), False

    def _used_by_all(self, left: Tensor, held: Tensor, cut: Mapping[str, str], out: Sequence[str]) -> Tensor:
        """A first operand that each device multiplies with its own part of the other, so that its gradient is a sum.

        One that was gathered over such an axis, or is cut over it, has that sum from its own transfer.
        """
        apart = any(name in out for name in cut) and not any(axis in cut.values() for _, axis in held.split)
        return moves.shared(self, left, next(iter(cut.values()))) if apart else left

    def _summed(self, name: str, partial: Tensor, axes: set[str], bias: Tensor | None) -> Tensor:
        """A result whose terms lie on the devices of these axes; a bias is added once, to the sum."""
        result = partial
        for axis in sorted(axes):
            result = moves.reduced(self, result, axis)
        return self.pointwise(f"{name}.bias", result, bias, dtype=result.dtype, add=True) if bias and axes else result

    def _result(  # noqa: PLR0913 - the operands, and what the result has of its own
        self, name: str, left: Tensor, right: Tensor, out: Sequence[str], dtype: str, sizes: Sequence[Dim]
    ) -> Tensor:
        """The output of an einsum: cut where the layout cuts its dims, and where its left operand is."""
        table = {d.name: d for d in (*left.dims, *right.dims, *sizes)}
        dims = tuple(table[n] for n in out)
        handed_on = tuple((n, axis) for n, axis in left.split if n in out and n not in self.layout.splits)
        return self.activation(name, dims, dtype, (*self.layout.of(dims), *handed_on))

    def pointwise(  # noqa: PLR0913 - the keywords are the facts of one row of a kernel's description
        self,
        name: str,
        *inputs: Tensor,
        like: Tensor | None = None,
        dims: tuple[Dim, ...] | None = None,
        dtype: str = "",
        kernel: KernelClass = ELEMENTWISE,
        flops: int = 1,
        saves: Sequence[Tensor | str] = (),
        extras: Sequence[Tensor] = (),
        backward_kernel: KernelClass | None = None,
        scratch: int = 0,
        add: bool = False,
    ) -> Tensor:
        """An elementwise operation. `saves` lists inputs, or `out`; `extras` are further results, always saved."""
        model = like or inputs[0]
        result = Tensor(
            name,
            model.dims if dims is None else dims,
            dtype or dtypes.promote(*[t.dtype for t in inputs if t.role not in ("index", "mask")]),
            "activation",
            tuple((n, axis) for n, axis in model.split if dims is None or n in [d.name for d in dims]),
            of_loss=self.of_loss,
            block=self.block,
        )
        kept = tuple(result if item == "out" else item for item in saves)
        kind = Addition if add else Pointwise
        tensors = tuple(item for item in kept if isinstance(item, Tensor))
        self.record(
            kind(
                name,
                kernel,
                inputs,
                (result, *extras),
                (*tensors, *extras),
                flops=flops,
                backward_kernel=backward_kernel,
                scratch=scratch,
            )
        )
        return result

    def view(self, tensor: Tensor, names: str, name: str) -> Tensor:
        """The same bytes under other dims."""
        table = {d.name: d for d in (*tensor.dims, *self.dims(names))}
        dims = tuple(table[n] for n in listed(names))
        return replace(tensor, name=name, dims=dims, view_of=tensor.storage)

    def taken(self, tensor: Tensor, parts: Mapping[str, tuple[Dim, ...]]) -> tuple[Tensor, ...]:
        """Views of the parts that make up a tensor, by name with their dims."""
        views = tuple(
            replace(tensor, name=name, dims=dims, split=self._split_as(tensor, dims), view_of=tensor.storage)
            for name, dims in parts.items()
        )
        self.record(Taken(f"{tensor.name}.taken", COPY, (tensor,), views))
        return views

    def _split_as(self, whole: Tensor, dims: tuple[Dim, ...]) -> Split:
        """The split of a part: that of the whole, where a dim of the part stands for another of the whole too."""
        own = {name: axis for name, axis in whole.split if name not in {dim.name for dim in dims}}
        others = ((dim.name, self.layout.splits.get(dim.name, "")) for dim in dims)
        return (*_on(whole.split, dims), *((name, axis) for name, axis in others if axis in own.values()))

    def joined(self, name: str, tensors: Sequence[Tensor], dims: tuple[Dim, ...]) -> Tensor:
        """Tensors copied side by side into one."""
        dtype = dtypes.promote(*[tensor.dtype for tensor in tensors])
        result = self.activation(name, dims, dtype, _on(tensors[0].split, dims))
        return self.record(Joined(name, COPY, tuple(tensors), (result,)))


def _on(split: Split, dims: tuple[Dim, ...]) -> Split:
    """What of a split concerns these dims."""
    names = {dim.name for dim in dims}
    return tuple((name, axis) for name, axis in split if name in names)


def _part(whole: Tensor, held: Tensor) -> sympy.Expr:
    """The share of a tensor that a device holds before it is gathered."""
    return held.elements() / whole.elements()
