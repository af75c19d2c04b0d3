"""Rotary positions: the forms in which each turns pairs of numbers, and the tables of angles that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import sympy

from ledger.model.dims import Dim
from ledger.model.elementwise import Pointwise
from ledger.model.tape import Tape
from ledger.model.tensors import BUFFER, Tensor, product
from ledger.spec.kernel_classes import COPY, ROTARY
from ledger.spec.plan import Attention

OWN = "attention"  # the part of a layer that keeps a table of its own


@dataclass(frozen=True)
class Rotation:
    """The names of a rotation, for the steps it is spelt out in, and of its result."""

    name: str
    result: str


def rotated(tape: Tape, name: str, x: Tensor, spec: Attention) -> Tensor:
    """The rotated part of each head turned, the rest as it was; result like `x`, (batch seq heads head_dim)."""
    part = spec.rotary < 1 or _form(tape, spec) in BESIDE_A_REST
    wide = "rotary_dim" if spec.rotary < 1 else "head_dim"
    rotating = tape.view(x, f"batch seq {x.dims[2].name} {wide}", f"{name}.part") if part else x
    turned_part = turned(tape, name, rotating, spec, "add" if part else "")
    return tape.pointwise(name, turned_part, x, like=x, kernel=COPY, add=True) if part else turned_part


def turned(tape: Tape, name: str, x: Tensor, spec: Attention, last: str = "") -> Tensor:
    """Every pair of numbers in the last dim turned by its position's angle; only the shared tables are saved.

    `last`: what the result is called within the operation of this name, if it is not the whole result of that.
    """
    return FORMS[_form(tape, spec)](tape, Rotation(name, f"{name}.{last}" if last else name), x, spec)


def _form(tape: Tape, spec: Attention) -> str:
    return KERNEL_FORMS.get(tape.kernels.rotary, spec.rotary_form)


def _halves(tape: Tape, rotation: Rotation, x: Tensor, spec: Attention) -> Tensor:
    """x cos + rotate_half(x) sin: the pairs are the two halves of a head."""
    tables = _tables(tape, x.dims[-1], spec)
    if tape.kernels.rotary == "fused":
        return tape.pointwise(rotation.result, x, *tables, dtype=x.dtype, kernel=ROTARY, flops=3, saves=tables)
    return _rotate_spelt_out(tape, rotation, x, tables)


def _wide_halves(tape: Tape, rotation: Rotation, x: Tensor, spec: Attention) -> Tensor:
    """x cos + rotate_half(x) sin in fp32 (OLMo 2)."""
    tables = [replace(table, dtype="fp32") for table in _tables(tape, x.dims[-1], spec)]
    return tape.cast(_rotate_spelt_out(tape, rotation, x, tables), x.dtype)


def _rotate_spelt_out(tape: Tape, rotation: Rotation, x: Tensor, tables: list[Tensor], scratch: int = 0) -> Tensor:
    """x cos + rotated x sin; `scratch`: gradients as large as `x` that backward puts together from parts."""
    name = rotation.name
    even = tape.pointwise(f"{name}.cos", x, tables[0], saves=[tables[0]])
    swapped = tape.pointwise(f"{name}.rotate", x, kernel=COPY, scratch=scratch)
    odd = tape.pointwise(f"{name}.sin", swapped, tables[1], saves=[tables[1]])
    return tape.pointwise(rotation.result, even, odd, add=True)


def _wide_pairs(tape: Tape, rotation: Rotation, x: Tensor, spec: Attention) -> Tensor:
    """Even and odd numbers are the pairs, turned in fp32 with tables in the dtype of the layer (Cohere)."""
    dtype = x.dtype
    return tape.cast(_rotate_spelt_out(tape, rotation, tape.cast(x, "fp32"), _tables(tape, x.dims[-1], spec), 1), dtype)


def _repeated_pairs(tape: Tape, rotation: Rotation, x: Tensor, spec: Attention) -> Tensor:
    """Even and odd numbers are the pairs; each layer widens the tables for its queries and keys (GLM-4)."""
    return _rotate_spelt_out(
        tape, rotation, x, [_widen_table(tape, table) for table in _tables(tape, x.dims[-1], spec)], 1
    )


def _widen_table(tape: Tape, table: Tensor) -> Tensor:
    """Every angle once for each number of its pair, in a tensor of the layer that queries and keys share."""
    wide = replace(table, name=f"{OWN}/{table.name}.repeated", role="statistic")
    if all(operation.output.name != wide.name for operation in tape.operations):
        tape.record(Pointwise(wide.name, COPY, (table,), (wide,)))
    return wide


def _pairs(tape: Tape, rotation: Rotation, x: Tensor, spec: Attention) -> Tensor:
    """Even and odd numbers are the pairs, each turned at half the width, then laid side by side (DeepSeek-V3)."""
    return _side_by_side(tape, rotation.result, x, _tables(tape, x.dims[-1], spec))


def _half_tables(tape: Tape, rotation: Rotation, x: Tensor, spec: Attention) -> Tensor:
    """The two halves are the pairs, with tables as wide as one (GPT-OSS)."""
    return _side_by_side(tape, rotation.result, x, _tables(tape, _half(x), spec))


def _half(x: Tensor) -> Dim:
    return Dim("half", product(x.dims[-1].symbol, sympy.Rational(1, 2)))


def _side_by_side(tape: Tape, name: str, x: Tensor, tables: list[Tensor]) -> Tensor:
    half = (*x.dims[:-1], _half(x))
    even, odd = tape.views_of_parts(x, {f"{name}.even": half, f"{name}.odd": half})
    cos, sin = tables
    results = []
    for result, first, second in (("first", even, odd), ("second", odd, even)):
        straight = tape.pointwise(f"{name}.{result}.cos", first, cos, saves=[cos])
        crossed = tape.pointwise(f"{name}.{result}.sin", second, sin, saves=[sin])
        results.append(tape.pointwise(f"{name}.{result}", straight, crossed, add=True))
    return tape.concatenate(name, results, x.dims)


def _complex(tape: Tape, rotation: Rotation, x: Tensor, spec: Attention) -> Tensor:
    """Pairs as complex numbers times a table of unit ones, in fp32 (DeepSeek-V2); a complex number is two of fp32."""
    table = Tensor(
        f"rotary/unit{_base_suffix(spec)}.table", (*tape.dims("seq"), x.dims[-1]), "fp32", "table", tape.layout.inputs
    )
    if tape.stack.rotary_tables == "each_layer":
        table = _rows_of_positions(tape, table)
    wide = tape.cast(x, "fp32")
    return tape.cast(tape.pointwise(f"{rotation.result}.turn", wide, table, flops=3, saves=[table]), x.dtype)


def _rows_of_positions(tape: Tape, table: Tensor) -> Tensor:
    """The rows of each token's position, taken from the layer's own table, which has those of whole sequences."""
    table_of_layer = replace(table, name=f"{OWN}/{table.name}", role=BUFFER, split=())
    batch = tape.dims("batch")
    rows = replace(table, name=f"{table_of_layer.name}.rows", dims=(*batch, *table.dims), role="statistic")
    if all(operation.output.name != rows.name for operation in tape.operations):  # once for queries and keys
        tape.record(Pointwise(rows.name, COPY, (table_of_layer,), (rows,)))
    return rows


def _tables(tape: Tape, width: Dim, spec: Attention) -> list[Tensor]:
    """Cosines and sines of every position; layers of one base share them."""
    dims = (*tape.dims("seq"), width)
    dtype = tape.precision.weights.embedding if tape.precision.autocast else tape.precision.activations
    return [
        Tensor(f"rotary/{name}{_base_suffix(spec)}.table", dims, dtype, "table", tape.layout.inputs)
        for name in ("cos", "sin")
    ]


def _base_suffix(spec: Attention) -> str:
    return f"_{spec.rotary_base}" if spec.rotary_base else ""


FORMS: Mapping[str, Callable[[Tape, Rotation, Tensor, Attention], Tensor]] = {
    "halves": _halves,
    "wide_halves": _wide_halves,
    "joined_halves": _halves,
    "half_tables": _half_tables,
    "pairs": _pairs,
    "wide_pairs": _wide_pairs,
    "repeated_pairs": _repeated_pairs,
    "complex": _complex,
}
BESIDE_A_REST = ("joined_halves", "repeated_pairs")  # put beside what is not rotated, even where that is empty
# Where the kernel decides how pairs are turned, whatever form the model is published in.
KERNEL_FORMS: Mapping[str, str] = {"fused": "halves", "complex": "complex"}
