"""The tape: components write operations on it; it settles dtypes (the precision policy) and splits (the layout)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sympy

from ledger.model import dtypes
from ledger.model.cache import KeyValueCache, as_served, weight_of_reached_experts
from ledger.model.causes import BIAS, Module, Parameter
from ledger.model.collectives import Collective, collective
from ledger.model.contraction import Contraction, Grouped
from ledger.model.dims import Dim, dim, listed, symbol
from ledger.model.elementwise import Addition, Pointwise
from ledger.model.formats import first_scales, pruning_of, scale_bytes, stored_dtype
from ledger.model.layout import Layout
from ledger.model.operations import ONE, Operation, differentiable, handed_on, total
from ledger.model.quantised import (
    ALL,
    PASSING,
    STAYING,
    Copies,
    Quantise,
    Quantised,
    QuantisedGather,
    QuantisedGroups,
    quantised_copies,
    reads_of_copies,
)
from ledger.model.tensors import SHARED, Side, Split, Tensor, product, sized
from ledger.spec.kernel_classes import CAST, COPY, DROPOUT, ELEMENTWISE, QUANTISE, REDUCTION, KernelClass, matmul
from ledger.spec.plan import Kernels, Lora, Precision, Stack
from ledger.spec.precision import WHOLE_TENSOR, Recipe
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
    cache: KeyValueCache | None = None
    side: Side = OWN_SEQUENCE
    operations: list[Operation] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    casts_and_transfers: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    casts: Counter[tuple[str, str]] = field(default_factory=Counter)  # of a tensor to a dtype

    # --- tensors ---

    def dims(self, names: str) -> tuple[Dim, ...]:
        """The dims of these names in this group."""
        length = symbol(self.side.length)  # of a sequence of its side of the model
        rows = (dim(name, self.suffix) for name in listed(names))
        return tuple(replace(row, symbol=length) if row.name in ("seq", "key") else row for row in rows)

    def weight(
        self, of: Module | Parameter, names: str | tuple[Dim, ...], lead: int = 1, *, fixed: bool = False
    ) -> Tensor:
        """A parameter, of a module the one that multiplies, cut as the layout says; the same one is the same tensor.

        `fixed`: it is not trained, whatever the plan trains.
        """
        parameter = Parameter(of) if isinstance(of, Module) else of
        dims = self.dims(names) if isinstance(names, str) else names
        split = self.layout.of(dims)
        weight = Tensor(str(parameter), dims, "", "weight", split, lead, parameter=parameter, block=self.block)
        pruned = pruning_of(self.precision, weight)
        packed = pruned if pruned and pruned.packed else None
        weight = replace(weight, dtype=stored_dtype(self.precision, weight), frozen=fixed, packed=packed)
        return self.weights.setdefault(weight.name, weight)

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
        table = {size.name: size for size in sizes}
        dims = tuple(table.get(name) or dim(name, self.suffix) for name in second)
        weight, rows = self.weight(module, dims, lead), tuple(row for row in dims if row.name in out)
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
        """This tape, which marks what is written as part of a region, within the one it is in."""
        return replace(self, region=(*self.region, region))

    def of_block(self, block: str) -> Tape:
        """This tape, for a part of a layer: attention or mlp."""
        return replace(self, block=block)

    def repeated(self, pieces: sympy.Expr) -> Tape:
        """This tape, whose operations are run in so many equal pieces, a kernel each."""
        return replace(self, pieces=pieces)

    # --- the layout ---

    @property
    def dtensor(self) -> bool:
        """Whether DTensor splits layers: it copies a sequence that it joins, and makes embeddings' gradients whole."""
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
        earlier = self.casts_and_transfers.get((tensor.name, dtype))
        if earlier and (shared or keep):
            return earlier
        self.casts[tensor.name, dtype] += 1
        count = self.casts[tensor.name, dtype]
        name = f"{tensor.name}.{dtype}" + (f".{count}" if count > 1 else "")
        result = replace(tensor, name=name, dtype=dtype, role=role, view_of="", kept_before=False)
        self.casts_and_transfers.setdefault((tensor.name, dtype), result)
        self.record(Pointwise(f"{name}.cast", CAST, (tensor,), (result,), once=shared and not self.precision.autocast))
        return result

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
        cut = {index: axis for index, axis in self.layout.splits.items() if index in (*first, *second)}
        sums = set[str]() if partial else {cut[index] for index in first if index in cut and index not in out}
        as_stored = self.cache is not None and right.role == "weight"
        recipe = None if dtype or result_dtype or as_stored else recipe_of(self, module, left, right)
        shard, (left, narrow) = left, self._gather_operand(left, set(cut.values()), recipe)
        operands, input_dtype = (left, right), left.dtype
        if not partial:
            left = self._share_operand(left, shard, cut, out)
        left = left if narrow else self.cast(left, compute, keep=self.cache is not None)
        inside = (self.cast(bias, compute),) if bias and not sums else ()  # before the weight, as autocast does
        stored = right if right.role == "weight" and dtypes.is_stored_only(right.dtype) and not as_stored else None
        if as_stored and right.packed and right.packed.unpacks:
            right = self.unpacked(right)
        uncast = recipe or as_stored
        right = copy_of(self, right, compute) if stored else right if uncast else self.cast(right, compute)
        result = self._result(name, left, right, out, result_dtype or dtype or self.matmul_result, sizes)
        saves = (saved_operand(self, left, shard), right, *saving)
        kernel = matmul(dtypes.rate(compute), grouped=grouped)
        copies = self.layout.repeated(left, right, result)
        kind = Grouped if grouped else Convolution if has_windows(einsum) else Contraction
        plain = kind(
            name, kernel, (left, right, *inside), (result,), saves, einsum=einsum, density=density, copies=copies
        )
        scattered = tuple(pair for pair in self.layout.stream if pair[1] in sums)
        parts = _shard_share(left, shard), _shard_share(result, result.on((*result.split, *scattered)))
        written = quantised_contraction(self, plain, recipe, parts, shard if narrow else None) if recipe else plain
        as_run = as_served(plain, self.cache) if self.cache else written
        self.record(contraction_of_stored_weight(plain, stored) if stored else as_run)
        result = self._write_sums(name, result, sums, bias)
        if stored:
            result = self.cast(result, input_dtype)  # bitsandbytes, nn/modules.py, Linear4bit.forward: `.to(inp_dtype)`
        return with_adapter(self, module, einsum, operands, result) if adapts(self.lora, module) else result

    def unpacked(self, weight: Tensor) -> Tensor:
        """A copy of a packed weight with its zeros, which a kernel of its own writes: of experts that are reached."""
        packed = weight_of_reached_experts(weight)
        copy = replace(packed, name=f"{weight.name}.unpacked", role=PASSING, packed=None)
        self.record(Operation(f"{weight.name}.unpack", CAST, (packed,), (copy,)))
        return copy

    def _gather_operand(self, shard: Tensor, axes: set[str], recipe: Recipe | None) -> tuple[Tensor, bool]:
        """A first operand whole over axes that cut other dims, and whether it is its quantised share that travels."""
        clash = clashing_splits(self, shard, axes)
        if recipe and self.layout.regather and recipe.gathers == recipe.saves == "quantised" and clash:
            # The share is gathered quantised, and again in backward; of the whole in its dtype, only a gradient exists.
            split = tuple(pair for pair in shard.split if pair not in clash)
            return shard.on(split, f"{shard.name}.gathered_quantised"), True
        return gather_clashing(self, shard, axes), False

    def _share_operand(self, left: Tensor, shard: Tensor, cut: Mapping[str, str], out: Sequence[str]) -> Tensor:
        """A first operand that each device multiplies with its own part of the other, so that its gradient is a sum.

        One that was gathered over such an axis, or is cut over it, has that sum from its own transfer.
        """
        apart = any(name in out for name in cut) and not any(axis in cut.values() for _, axis in shard.split)
        return share_across(self, left, next(iter(cut.values()))) if apart else left

    def _write_sums(self, name: str, partial: Tensor, axes: set[str], bias: Tensor | None) -> Tensor:
        """A result whose terms lie on the devices of these axes; a bias is added once, to the sum."""
        result = partial
        for axis in sorted(axes):
            result = reduce_to_stream(self, result, axis)
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
        saved = tuple(result if item == "out" else item for item in saves)
        kind = Addition if add else Pointwise
        tensors = tuple(item for item in saved if isinstance(item, Tensor))
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
        """A view of a tensor: its bytes under other dims."""
        table = {d.name: d for d in (*tensor.dims, *self.dims(names))}
        dims = tuple(table[n] for n in listed(names))
        return replace(tensor, name=name, dims=dims, view_of=tensor.storage)

    def views_of_parts(self, tensor: Tensor, parts: Mapping[str, tuple[Dim, ...]]) -> tuple[Tensor, ...]:
        """Views of the parts that make up a tensor, by name with their dims."""
        views = tuple(
            replace(tensor, name=name, dims=dims, split=self._part_split(tensor, dims), view_of=tensor.storage)
            for name, dims in parts.items()
        )
        self.record(TensorParts(f"{tensor.name}.taken", COPY, (tensor,), views))
        return views

    def _part_split(self, tensor: Tensor, dims: tuple[Dim, ...]) -> Split:
        """The split of a part: that of the whole, where a dim of the part stands for another of the whole too."""
        dropped = {name: axis for name, axis in tensor.split if name not in {dim.name for dim in dims}}
        cuts = ((dim.name, self.layout.splits.get(dim.name, "")) for dim in dims)
        return (*_split_over(tensor.split, dims), *((name, axis) for name, axis in cuts if axis in dropped.values()))

    def concatenate(self, name: str, tensors: Sequence[Tensor], dims: tuple[Dim, ...]) -> Tensor:
        """Tensors copied side by side into one."""
        dtype = dtypes.promote(*[tensor.dtype for tensor in tensors])
        result = self.activation(name, dims, dtype, _split_over(tensors[0].split, dims))
        return self.record(Concatenation(name, COPY, tuple(tensors), (result,)))


def _split_over(split: Split, dims: tuple[Dim, ...]) -> Split:
    """The pairs of a split whose dims are among these."""
    names = {dim.name for dim in dims}
    return tuple((name, axis) for name, axis in split if name in names)


def _shard_share(tensor: Tensor, shard: Tensor) -> sympy.Expr:
    """The share of a tensor that a device holds before it is gathered."""
    return shard.elements() / tensor.elements()


# --- transfers ---


def all_gather_along(tape: Tape, tensor: Tensor, axis: str) -> Tensor:
    """The tensor gathered over an axis that cuts its sequence, where one does."""
    split = tuple(pair for pair in tensor.split if pair[1] != axis)
    if split == tensor.split:
        return tensor
    return _transfer(tape, "all_gather", axis, tensor, tensor.on(split, f"{tensor.name}.gathered"))


def gather_or_share(tape: Tape, tensor: Tensor, axis: str) -> Tensor:
    """The tensor whole on every device of an axis, each of which uses it in its own way."""
    gathered = gather_clashing(tape, tensor, {axis})
    return gathered if gathered is not tensor else share_across(tape, tensor, axis)


def all_reduce_over(tape: Tape, partial: Tensor, axis: str) -> Tensor:
    """A sum over a mesh axis that every device of the axis keeps."""
    return _transfer(tape, "all_reduce", axis, partial, partial.on(partial.split, f"{partial.name}.sum"))


def reduce_to_stream(tape: Tape, partial: Tensor, axis: str) -> Tensor:
    """A sum over a mesh axis, left as the residual stream is held: whole, or scattered."""
    scattered = tuple((n, a) for n, a in tape.layout.stream if a == axis)
    kind = "reduce_scatter" if scattered else "all_reduce"
    return _transfer(tape, kind, axis, partial, partial.on((*partial.split, *scattered), f"{partial.name}.sum"))


def clashing_splits(tape: Tape, tensor: Tensor, axes: set[str]) -> list[tuple[str, str]]:
    """The pairs of a tensor's split whose axes an einsum needs for other dims."""
    return [(n, a) for n, a in tensor.split if a in axes and n not in tape.layout.splits]


def gather_clashing(tape: Tape, tensor: Tensor, axes: set[str]) -> Tensor:
    """Gathers a held split that clashes with an axis the einsum needs for another dim."""
    for name, axis in clashing_splits(tape, tensor, axes):
        gathered = tape.casts_and_transfers.get((tensor.name, f"gather.{axis}"))
        if gathered is None:
            split = tuple(pair for pair in tensor.split if pair != (name, axis))
            gathered = tensor.on(split, f"{tensor.name}.gathered")
            tape.casts_and_transfers[tensor.name, f"gather.{axis}"] = gathered
            _transfer(tape, "all_gather", axis, tensor, gathered)
        tensor = gathered
    return tensor


def share_across(tape: Tape, tensor: Tensor, axis: str) -> Tensor:
    """Marks a value that every device of an axis uses in its own way, so that its gradient is summed."""
    shared = tape.casts_and_transfers.get((tensor.name, f"share.{axis}"))
    if shared is None:
        shared = replace(tensor, name=f"{tensor.name}.shared", view_of=tensor.storage)
        tape.casts_and_transfers[tensor.name, f"share.{axis}"] = shared
        _transfer(tape, "none", axis, tensor, shared)
    return shared


def saved_operand(tape: Tape, used: Tensor, shard: Tensor) -> Tensor:
    """The input that a contraction saves: the tensor it read, or the shard it can gather it from again."""
    return shard if tape.layout.regather and shard.split != used.split and used.dtype == shard.dtype else used


def _transfer(tape: Tape, kind: str, axis: str, source: Tensor, result: Tensor) -> Tensor:
    """Writes a transfer. DTensor joins and cuts a sequence, which is not the outermost dim, by way of a copy.

    (torch/distributed/_functional_collectives.py: chunk, then cat; Megatron-LM keeps the sequence outermost.)
    """
    sequence = ("seq", axis) in tape.layout.stream and axis == "tensor" and tape.keeps_gathered
    copied = sequence and kind in ("all_gather", "reduce_scatter")
    if kind == "all_reduce" and tape.stack.tensor_parallel == "explicit":  # in place, where DTensor's is functional
        result = replace(result, view_of=source.storage)
    name = f"{source.name}.{'share' if kind == 'none' else kind}"
    return tape.record(collective(name, kind, axis, source, result, copied=copied))


# --- products of quantised operands ---


def quantised_contraction(
    tape: Tape,
    plain: Contraction,
    recipe: Recipe,
    parts: tuple[sympy.Expr, sympy.Expr] = ALL,
    shard: Tensor | None = None,
) -> Quantised:
    """The contraction of quantised operands; the kernels that quantise them are written on the tape.

    `held` is the share of the first operand that is quantised, gathered, and kept for backward to gather it again.
    """
    parts = parts if recipe.gathers == "quantised" else ALL
    shared = tape.stack.compiled or parts[0] != ONE
    (left, right), (inputs, weights) = plain.inputs[:2], _operand_copies(plain, recipe, shared=shared)
    keeps, stays = recipe.saves == "quantised", recipe.lasts
    if shard is None:
        _write_quantise(tape, left, inputs, recipe, both=keeps, part=parts[0])
        saved_inputs = inputs.backward if keeps else (left,)
    else:
        saved_inputs = _gather_share(tape, plain, recipe, shard, inputs)
    if recipe.weights != "gathered":
        _write_quantise(tape, right, weights, recipe, both=stays and not recipe.turns, once=stays)
    held_for_backward = weights.forward if recipe.turns else weights.backward if stays else (right,)
    saves = (*saved_inputs, *held_for_backward, *plain.saves[2:])
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
        share=saved_inputs if shard is not None else (),
    )


def _gather_share(tape: Tape, plain: Contraction, recipe: Recipe, shard: Tensor, copies: Copies) -> tuple[Tensor, ...]:
    """Quantises a share and gathers it: what is kept of it.

    One scale a tensor serves rows and columns, so backward gathers the same bytes again and turns them; else the
    share's columns are kept, and gathered in backward (Transformer Engine, module/layernorm_linear.py).
    """
    left = plain.inputs[0]
    axis = next(axis for name, axis in shard.split if (name, axis) not in left.split)
    share = _operand_copies(replace(plain, inputs=(shard, *plain.inputs[1:])), recipe, shared=True)[0]
    turned = recipe.activation_block == WHOLE_TENSOR
    _write_quantise(tape, shard, share, recipe, both=not turned)
    key = (copies.forward[0].name, PASSING)
    if key not in tape.casts_and_transfers:
        tape.casts_and_transfers[key] = copies.forward[0]
        gather = QuantisedGather(
            f"{shard.name}.all_gather_quantised",
            KernelClass("all_gather"),
            share.forward,
            copies.forward,
            collective="all_gather",
            axis=axis,
            originals=(shard, left),
        )
        tape.record(replace(gather, block=shard.block))
    return share.forward if turned else share.backward


def _operand_copies(plain: Contraction, recipe: Recipe, *, shared: bool) -> tuple[Copies, Copies]:
    """Copies of both operands.

    One that stays for backward, or that is gathered, is made once for all contractions that read the tensor, as where
    their weights are one matrix; so is what is compiled, since equal subexpressions are one (torch/_functorch/
    partitioners.py, fx_graph_cse). Else each has its own.
    """
    first, second, out = plain.terms()
    left, right = plain.inputs[:2]
    contracted = tuple(d for d in first if d in second and d not in out)
    rows, columns = (
        tuple(d for d in dims if d in out and d not in partner) for dims, partner in ((first, second), (second, first))
    )
    operand = left if recipe.saves == "quantised" or shared else replace(left, name=f"{plain.name}.input")
    role = "weight" if recipe.weights == "gathered" else STAYING if recipe.lasts else PASSING
    return (
        quantised_copies(operand, recipe.format, recipe.activation_block, (contracted, rows), recipe),
        quantised_copies(right, recipe.format, recipe.weight_block, (contracted, columns), recipe, role),
    )


def _write_quantise(  # noqa: PLR0913 - the arguments are the facts of one kernel
    tape: Tape,
    tensor: Tensor,
    copies: Copies,
    recipe: Recipe,
    *,
    both: bool,
    once: bool = False,
    part: sympy.Expr = ONE,
) -> None:
    written = copies.both() if both else copies.forward
    key = (written[0].name, PASSING)
    if key not in tape.casts_and_transfers:
        tape.casts_and_transfers[key] = written[0]
        tape.record(
            Quantise(
                f"{copies.of}.quantise",
                QUANTISE,
                (tensor,),
                written,
                reads=reads_of_copies(recipe, written),
                part=part,
                once=once,
            )
        )


# --- which contractions are quantised ---


def recipe_of(tape: Tape, module: Module, left: Tensor, right: Tensor) -> Recipe | None:
    """The recipe by which a contraction's operands are quantised, if they are: those of activations alone never.

    Of an operand that backward has to make anew, no copy is kept beside (Megatron-Core, `set_save_original_input`).
    """
    recipe = tape.precision.matmul
    if recipe is None or right.role != "weight":
        return None
    if recipe.leaves(tape.suffix, str(module), module.component, module.name):
        return None
    again = str(module) in recipe.quantised_again or _is_made_anew(tape, left)
    return replace(recipe, saves="original") if again else recipe


def _is_made_anew(tape: Tape, tensor: Tensor) -> bool:
    """Whether a tensor does not wait for backward as it is."""
    for operation in reversed(tape.operations):
        if any(output.storage == tensor.storage for output in operation.outputs):
            parts = set(operation.region)
            is_saved = any(saved.storage == tensor.storage for saved in operation.saves)
            return bool(parts & tape.discarded) or (is_saved and bool(parts & tape.stored))
    return False


# --- weights that are only stored quantised ---

FLOPS = 2  # of an element: its value looked up, and scaled


@dataclass(frozen=True)
class Dequantise(Operation):
    """The kernels that bring a stored matrix back; the copy is gone once the product that it is for has run.

    The weight is frozen, so backward has nothing to do here (bitsandbytes, autograd/_functions.py, MatMul4Bit).
    """

    def traffic(self) -> sympy.Expr:
        """Bytes: what is stored is read, its scales with it; the copy, and scales in fp32 on the way, are written.

        Those scales are written once, then read and written as the offset is added, and read for the copy.
        """
        stored, (copy, *wide) = self.inputs[0], self.outputs
        passes = (product(4, scales.bytes()) for scales in wide)
        return total(
            (sized(stored.dtype, stored.elements()), *scale_bytes(stored.dtype, stored), copy.bytes(), *passes)
        )

    def vector(self) -> sympy.Expr:
        """A few operations on each element."""
        return product(FLOPS, self.outputs[0].elements())

    def learned(self) -> tuple[Tensor, ...]:
        """No tensor: what is only stored quantised is not trained."""
        return ()


@dataclass(frozen=True)
class Dequantised(Contraction):
    """A contraction with a copy of a `stored` weight, which is saved for backward in the place of the copy."""

    stored: tuple[Tensor, ...] = ()

    def gradients(self) -> tuple[Operation, ...]:
        """The gradient of the input is a product with the weight, which is brought back once more."""
        return tuple(self._gradients())

    def _gradients(self) -> Iterator[Operation]:
        copy = self.inputs[1]
        again = replace(copy, name=f"{copy.name}.again")
        for step in super().gradients():
            if copy in step.inputs:
                yield dequantise_kernels(f"{self.name}.dequantise_again", self.stored[0], again)
            yield replace(step, inputs=tuple(again if tensor == copy else tensor for tensor in step.inputs))


@dataclass(frozen=True)
class DequantisedGroups(Dequantised, Grouped):
    """Groups of rows, each with a matrix of its own, in one kernel."""


def dequantise_kernels(name: str, stored: Tensor, copy: Tensor) -> Dequantise:
    """The kernels that bring a weight back: one, or more of them with its scales in fp32 where those are quantised."""
    kernels = dtypes.DTYPES[stored.dtype].unpacking
    scales = Tensor(f"{copy.name}.scales", (Dim("scales", first_scales(stored.dtype, stored)),), "fp32", PASSING)
    outputs = (copy, scales) if kernels > 1 else (copy,)
    return Dequantise(name, QUANTISE, (stored,), outputs, pieces=sympy.Integer(kernels))


def copy_of(tape: Tape, weight: Tensor, dtype: str) -> Tensor:
    """A copy of a stored weight in the dtype that it is multiplied in, whose kernels are written on the tape."""
    copy = replace(weight, name=f"{weight.name}.{dtype}", dtype=dtype, role=PASSING, view_of="")
    dequantise = dequantise_kernels(f"{weight.name}.dequantise", weight, copy)
    tape.repeated(product(tape.pieces, dequantise.pieces)).record(dequantise)
    return copy


def contraction_of_stored_weight(plain: Contraction, stored: Tensor) -> Dequantised:
    """The contraction that keeps its weight as it is stored, in the place of the copy that it multiplies."""
    kind = DequantisedGroups if isinstance(plain, Grouped) else Dequantised
    saves = tuple(stored if saved == plain.inputs[1] else saved for saved in plain.saves)
    return kind(
        plain.name,
        plain.kernel,
        plain.inputs,
        plain.outputs,
        saves,
        einsum=plain.einsum,
        density=plain.density,
        copies=plain.copies,
        stored=(stored,),
    )


# --- low-rank adapters ---


def adapts(lora: Lora | None, module: Module) -> bool:
    """Whether a module has an adapter: targets are names of modules within their components."""
    return lora is not None and module.name in lora.targets


def rank_dim(lora: Lora, target: str) -> Dim:
    """The dim between the two factors of a target's adapter; of ranks by target each has a letter of its own: `r_q`."""
    if isinstance(lora.rank, Mapping):
        return Dim("rank", sympy.Symbol(f"{symbol('rank')}_{target}", positive=True, integer=True))
    return dim("rank")


def with_adapter(tape: Tape, module: Module, einsum: str, operands: tuple[Tensor, Tensor], result: Tensor) -> Tensor:
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
    row_dims, sizes = [n for n in first if n not in inner], (*weight.dims, rank_dim(lora, module.name))
    down, up = (replace(module, name=f"{module.name}.{factor}", adapter=True) for factor in ("lora_a", "lora_b"))
    narrow = tape.linear(down, _einsum(first, ["rank", *inner], [*row_dims, "rank"]), x, sizes=sizes)
    into = _einsum([*row_dims, "rank"], [*outer, "rank"], out)
    wide = tape.linear(up, into, narrow, lead=len(outer), sizes=sizes)
    scaled = tape.pointwise(f"{module}.lora_scale", wide)
    return tape.pointwise(f"{module}.lora_add", result, scaled, dtype=result.dtype, add=True)


def _einsum(first: Sequence[str], second: Sequence[str], out: Sequence[str]) -> str:
    return f"{' '.join(first)}, {' '.join(second)} -> {' '.join(out)}"


# --- tensors taken apart and put together ---


@dataclass(frozen=True)
class TensorParts(Operation):
    """A tensor as views of its parts: nothing runs, until backward puts the gradients of the parts together."""

    @property
    def runs(self) -> bool:
        """Views are no kernel."""
        return False

    def gradients(self) -> tuple[Operation, ...]:
        """One copy, from the gradients of all parts to that of the whole."""
        parts = tuple(part.gradient for part in self.outputs)
        return (Pointwise(f"{self.name}.gradient", COPY, parts, (self.inputs[0].gradient,)),)


@dataclass(frozen=True)
class Concatenation(Pointwise):
    """Tensors copied one beside the other: the gradient of each is a part of the upstream gradient, without a kernel.

    A weight is there once for many places, so its gradient is a sum over them.
    """

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The gradient of an activation is a view."""
        return handed_on(self, *[t for t in self.inputs if differentiable(t) and t.role == "activation"])

    def gradients(self) -> tuple[Operation, ...]:
        """For each weight, a sum of the gradient over the places where it stands."""
        name, upstream = f"{self.name}.gradient", self.output.gradient
        weights = [tensor for tensor in self.inputs if differentiable(tensor) and tensor.role != "activation"]
        return tuple(Pointwise(name, REDUCTION, (upstream,), (weight.gradient,)) for weight in weights)


# --- convolutions ---


@dataclass(frozen=True)
class Convolution(Contraction):
    """A contraction through windows, whose backward pass is one operator with both operands among its arguments.

    Autograd therefore keeps both whichever gradients are asked for (torch derivatives.yaml, convolution).
    """
