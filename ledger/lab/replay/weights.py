"""What one device holds of every weight, and which weights are gathered as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import sympy

from ledger.books.evaluate import Value
from ledger.model.exchanges import ends_apart
from ledger.model.formats import stored_bytes, stored_dtype
from ledger.model.fsdp_units import ROOT, wrapped
from ledger.model.offloading import weights_on_host
from ledger.model.program import Program
from ledger.model.sharding import Sharding
from ledger.model.tensors import Tensor, sized
from ledger.spec.plan import Plan, Precision


@dataclass(frozen=True)
class WeightBytes:
    """Bytes of one weight on a device: itself, its gradient, and the share of it that is updated there; 0: neither."""

    weight: int
    gradient: int
    updated: int


def gathered_units(plan: Plan, program: Program) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """The weights of one layer of each unit, and those of the root, or of each end that moves by itself."""
    alone = ends_apart(plan, program.units)
    yield from ((unit.name, unit.weights) for unit in program.units if unit.name in alone)
    yield from ((name, weights) for name, _, weights in wrapped(program.units) if not alone or name != ROOT)


def weight_bytes(plan: Plan, program: Program, value: Value) -> Iterator[tuple[str, WeightBytes]]:
    """Every weight and what is held of it, layer by layer."""
    sharding, precision, hosted = program.sharding, plan.precision, weights_on_host(plan)
    for name, count, weights in wrapped(program.units):
        sizes = [
            WeightBytes(
                int(value(stored_bytes(precision, weight, sharding, on_host=hosted))),
                0 if hosted else int(value(sized(precision.gradients, sharding.held("gradients", weight)))),
                int(value(_updated(precision, sharding, weight))) if is_trained(weight) else 0,
            )
            for weight in weights
        ]
        for layer in range(int(value(count))):
            yield from ((f"{name}.{layer}.{w.name}", size) for w, size in zip(weights, sizes, strict=True))


def _updated(precision: Precision, sharding: Sharding, weight: Tensor) -> sympy.Expr:
    return sized(stored_dtype(precision, weight), sharding.held("optimizer", weight))


def gradients(weights: Iterable[Tensor]) -> Iterator[Tensor]:
    """The weights that have a gradient, as wide as gradients are."""
    return (replace(weight, narrow="") for weight in weights if is_trained(weight))


def is_trained(weight: Tensor) -> bool:
    """Whether a weight has a gradient."""
    return not weight.frozen
