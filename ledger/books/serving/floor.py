"""What decoding reads of a model: weights as far as tokens reach them. Of plans that train, too, and over arrays."""

from __future__ import annotations

from functools import lru_cache

import sympy

from ledger.arithmetic.values import Amount, power
from ledger.books.bindings import model_sizes
from ledger.books.evaluate import exact
from ledger.model.dims import symbol
from ledger.model.elementwise import Lookup
from ledger.model.formats import scale_bytes
from ledger.model.operations import Operation, total
from ledger.model.schedule import whole_role
from ledger.model.serving import served_builder, units_of
from ledger.spec.plan import Group, Kernels, Model, Plan, Precision, Stack


def experts_hit(group: Group, tokens: Amount) -> Amount:
    """Experts of a layer that at least one of so many tokens is sent to, where routers choose all alike often.

    X (1 - (1 - T / X)^tokens): each token leaves an expert out with the probability 1 - T / X.
    """
    experts, used = group.mlp.experts, group.mlp.top_k
    return experts * (1 - power(1 - used / experts, tokens))


def weight_bytes(operation: Operation) -> sympy.Expr:
    """Bytes of weights that an operation reads, with their scales; of a table, those of the rows that it looks up."""
    if isinstance(operation, Lookup):
        return operation.output.bytes()
    weights = [tensor for tensor in operation.inputs if tensor.role == "weight"]
    scales = [amount for weight in weights for amount in scale_bytes(weight.dtype, weight)]
    return total((*(weight.bytes() for weight in weights), *scales))


def weights_read(plan: Plan) -> Amount:
    """Bytes of the whole model's weights that the next token of each sequence of a micro-batch reads."""
    model, sequences = plan.model, plan.run.micro_batch
    sizes = {**model_sizes(model), symbol("batch"): sequences, symbol("seq"): 1}
    for group in model.groups:
        suffix = group.name if len(model.groups) > 1 else ""
        sizes[symbol("layers", suffix)] = group.repeat
        if group.mlp.experts:
            sizes[symbol("hit", suffix)] = experts_hit(group, sequences)
    return exact(sizes)(_weights_read_bytes(model, plan.precision, plan.kernels, plan.stack))


@lru_cache(maxsize=32)
def _weights_read_bytes(model: Model, precision: Precision, kernels: Kernels, stack: Stack) -> sympy.Expr:
    units = units_of(served_builder(model, precision, kernels, stack), whole_role(model), decodes=True)
    return total(unit.count * weight_bytes(operation) for unit in units for operation in unit.forward)
