"""The format that each weight is stored in, by the part of the model that it belongs to, and the bytes it takes."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import sympy

from ledger.model import dtypes
from ledger.model.causes import BIAS
from ledger.model.operations import ONE, ZERO, total
from ledger.model.sharding import Sharding
from ledger.model.tensors import CeilDiv, Tensor, product, sized
from ledger.spec.plan import Plan, Precision
from ledger.spec.precision import Pruning

ADAPTERS = "adapters"
EXPERTS = "experts"
ENDS = ("embedding", "head")  # components that are parts of a model by themselves
NORMS = ("final_norm", "attention_norm", "mlp_norm", "attention_post_norm", "mlp_post_norm")  # as `train` names them
EMBEDDINGS = {"embedding", "source_embedding"}  # tables, convolutions over patches and sound: none is nn.Linear


def part_of(weight: Tensor) -> str:
    """The part of a model, as `precision.weights` names it, that a weight belongs to."""
    of = weight.parameter
    if of is None:
        return "base"
    if of.module.adapter:
        return ADAPTERS
    if of.kind == BIAS or of.elementwise or len(weight.dims) == 1:  # bitsandbytes quantises weights of nn.Linear alone
        return "norms"
    if of.module.component in EMBEDDINGS:
        return "embedding"
    if of.module.component == "head":
        return "head"
    per_expert = len(weight.dims) > 2 and any(dim.name == "experts" for dim in weight.dims)
    return EXPERTS if per_expert else "base"  # the router has a row for each expert, and is one matrix


def stored_dtype(precision: Precision, weight: Tensor) -> str:
    """The format that a weight is stored in from step to step; of experts that of `base`, where none is stated."""
    return str(getattr(precision.weights, part_of(weight)) or precision.weights.base)


def share_dtype(precision: Precision, weight: Tensor) -> str:
    """The format of a device's share of a weight that ZeRO 3 shares out: quantised, where no other copy is kept."""
    only_quantised = precision.matmul is not None and precision.matmul.weights == "only"
    return weight.narrow if weight.narrow and only_quantised else stored_dtype(precision, weight)


def pruning_of(precision: Precision, weight: Tensor) -> Pruning | None:
    """How a weight was pruned; None of what is no matrix of a layer."""
    return precision.pruned if part_of(weight) in ("base", EXPERTS) else None


def average_bytes(precision: Precision, weight: Tensor) -> Fraction:
    """Bytes that an element of a large matrix takes as it is stored, with its scales."""
    row, pruned = dtypes.DTYPES[stored_dtype(precision, weight)], pruning_of(precision, weight)
    if pruned is None or not pruned.packed:
        return row.average
    return row.average - row.size + pruned.packed_bytes(row.size)


def trained_dtype(plan: Plan) -> str:
    """The format of the weights that are trained; of the widest, where only parts are trained and those differ."""
    formats = plan.precision.weights
    if plan.train.lora:
        return formats.adapters
    if not formats.is_stored_only:
        return formats.base
    parts = plan.train.names if plan.train.kind == "only" else ("norms", *ENDS)
    return dtypes.promote(*(getattr(formats, part if part in ENDS else "norms") for part in parts))


def trained_parts(plan: Plan) -> tuple[str, ...]:
    """The parts of a model, as `precision.weights` names them, of which some weights are trained."""
    train, names = plan.train, set(plan.train.names)
    if train.lora:
        return (ADAPTERS,)
    ends = tuple(end for end in ENDS if not (end == "head" and plan.model.tied))
    if train.kind == "only":
        norms = {*NORMS, *(f"{group.name}/{norm}" for group in plan.model.groups for norm in NORMS)}
        parts = {
            *names,
            *(("base", "norms") if names - norms - {*ENDS} else ()),
            *(("norms",) if names & norms else ()),
        }
        return tuple(part for part in ("base", "norms", *ends) if part in parts)
    all_layers = {group.name for group in plan.model.groups} <= names and train.kind == "frozen"
    frozen = names | ({"base"} if all_layers or {"attention", "mlp"} <= names else set())
    frozen |= {"norms"} if all_layers and "final_norm" in names else set()
    return tuple(part for part in ("base", "norms", *ends) if part not in frozen)


def stored_bytes(precision: Precision, weight: Tensor, sharding: Sharding, *, on_host: bool = False) -> sympy.Expr:
    """Bytes of a weight on one device from step to step; where the host has the weights, of its scales alone.

    0 where it has whole quantised copies alone, which are counted by themselves. What is quantised is cut with the
    weight where ZeRO shares it out, and what stands beside it is not: bitsandbytes keeps its QuantState in Python,
    which FSDP does not see (bitsandbytes, nn/modules.py, Params4bit).
    """
    split = sharding.splits("weights")
    if weight.narrow and not split:
        return ZERO
    if weight.packed:
        return total((weight.bytes(), *scale_bytes(weight.dtype, weight)))
    dtype = share_dtype(precision, weight) if split else stored_dtype(precision, weight)
    scales = total(scale_bytes(dtype, weight))
    return scales if on_host else total((sized(dtype, sharding.held_elements("weights", weight)), scales))


def scale_bytes(dtype: str, weight: Tensor) -> Iterator[sympy.Expr]:
    """Bytes of each kind of scale beside a weight that is stored in this format; none where it is multiplied as it is.

    A last, short block has a scale too. Of experts that are one tensor, each is a matrix.
    """
    number_of = matrices(weight)
    rows = product(*[weight.local(dim) for dim in weight.dims[: weight.lead]])
    for scales in dtypes.DTYPES[dtype].scales:
        if scales.block == dtypes.WHOLE:
            number = number_of
        elif scales.block == dtypes.ROW:
            number = rows
        else:
            number = product(number_of, CeilDiv(weight.elements() / number_of, scales.block))
        yield sized(scales.dtype, product(scales.count, number))


def matrices(weight: Tensor) -> sympy.Expr:
    """The number of matrices that a weight is on one device: one for each of its experts, or one."""
    return product(*[weight.local(dim) for dim in weight.dims if dim.name == "experts"])


def first_scales(dtype: str, weight: Tensor) -> sympy.Expr:
    """The number of scales of a weight's innermost blocks; 1 where there are none."""
    blocks = [scales.block for scales in dtypes.DTYPES[dtype].scales if scales.block > 0]
    return CeilDiv(weight.elements(), blocks[0]) if blocks else ONE
