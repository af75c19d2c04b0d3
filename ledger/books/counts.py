"""Totals that are counts: parameters, FLOPs by pass, and what PyTorch's own counters report. Exact integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import sympy

from ledger.arithmetic.values import Amount, ceil_divide, divide, largest_of, minimum, truncate
from ledger.books.compiled_roles import CompiledRole, Whole, whole
from ledger.books.evaluate import Exact
from ledger.model import dtypes
from ledger.model.causes import ENDS, ROOT
from ledger.model.dims import symbol
from ledger.model.formats import ADAPTERS, average_bytes, part_of, stored_bytes
from ledger.model.fsdp_units import weights_by_unit
from ledger.model.operations import Operation, differentiable, total
from ledger.model.optimizers import WHOLE, per_parameter, states, trained_weights
from ledger.model.tensors import SHARED, Tensor, sized
from ledger.model.unit import Unit
from ledger.numbers import DAY
from ledger.spec.documents import TOLD_BOUNDS, causal_keys, document_keys
from ledger.spec.plan import Attention, Group, Plan
from ledger.spec.token_budget import TokensPerParameter

Totals = Iterator[tuple[str, Amount]]
PER_DEVICE, CHECKPOINT = "parameters.per_device", "checkpoint.bytes"
CORE = ("attention", "core")
OF_ALL = ("table", SHARED)  # roles of what layers have in common


def parameters(model: Whole, books: Sequence[CompiledRole]) -> Totals:
    """Parameters of the model, those a token uses, and those one device holds."""
    yield from of_model(model)
    yield PER_DEVICE, largest_of(per_device(book) for book in books)


def of_model(model: Whole) -> Totals:
    """Parameters of the model: all, those a token uses, those of adapters and of the rest, those that are trained."""
    yield "parameters", whole_parameters(model)
    yield (
        "parameters.active",
        sum(model.value(layers * elements_used_by_token(weight)) for layers, weight in model.weights()),
    )
    if adapters := [(layers, weight) for layers, weight in model.weights() if part_of(weight) == ADAPTERS]:
        base = [(layers, weight) for layers, weight in model.weights() if part_of(weight) != ADAPTERS]
        yield "parameters.adapters", sum(model.value(layers * weight.elements()) for layers, weight in adapters)
        yield "parameters.base", base_parameters(model)
        yield (
            "parameters.base.active",
            sum(model.value(layers * elements_used_by_token(weight)) for layers, weight in base),
        )
    yield "parameters.trainable", trainable(model)


def base_parameters(model: Whole) -> Exact:
    """Parameters of the model without adapters."""
    base = ((layers, weight) for layers, weight in model.weights() if part_of(weight) != ADAPTERS)
    return sum(model.value(layers * weight.elements()) for layers, weight in base)


def per_device(book: CompiledRole) -> Exact:
    """Parameters that one device holds."""
    return book.value(book.held_elements("weights"))


def whole_parameters(model: Whole) -> Exact:
    """Parameters of the model."""
    return sum(model.value(layers * weight.elements()) for layers, weight in model.weights())


def with_token_count(plan: Plan) -> Plan:
    """The plan with the parameters counted that its tokens are stated by; any other plan as it is."""
    tokens = plan.run.tokens
    if not isinstance(tokens, TokensPerParameter):
        return plan
    counted = replace(tokens, parameters=int(whole_parameters(whole(plan))))
    return replace(plan, run=replace(plan.run, tokens=counted))


def elements_used_by_token(weight: Tensor) -> sympy.Expr:
    """Elements of a weight that one token uses: of experts, the few that it is sent to."""
    experts = [dim for dim in weight.dims if dim.name == "experts"]
    if not experts:
        return weight.elements()
    return weight.elements() * symbol("top_k", experts[0].suffix) / experts[0].symbol


Spent = tuple[Amount, Mapping[str, Amount]]  # so many devices, and what each of them spends in a step


def flops(plan: Plan, spent: Sequence[Spent]) -> Totals:
    """Matmul FLOPs of the whole job in one step, by pass, with the exact density of causal masks."""

    def phase_flops(phase: str) -> Amount:
        return sum(devices * role_spent.get(f"flops.{phase}", 0) for devices, role_spent in spent)

    by_phase = {phase: phase_flops(phase) for phase in ("forward", "backward", "recompute")}
    for phase, amount in by_phase.items():
        yield f"flops.{phase}", amount
    step = sum(by_phase.values())
    yield "flops.model", by_phase["forward"] + by_phase["backward"]
    yield "flops.step", step
    if plan.run.tokens:
        yield "flops.run", step * steps(plan)
    if any("flops.update" in role_spent for _, role_spent in spent):
        yield "flops.update", phase_flops("update")


def checkpoint(plan: Plan, model: Whole) -> Totals:
    """Bytes of one checkpoint: what a run that stopped cannot make again, each trained weight once in the job.

    Of each weight its master copy, where there is one, else the weight in the format of its part, with its scales; and
    the states of the rule that updates it, wherever they are held. Weights that are made of a master copy are left out,
    as are frozen ones. No layout changes it: sizes are those of whole weights, not of padded or small shares.
    """
    precision = plan.precision
    amount: Exact = 0
    for row in trained_weights(plan.optimizer, model.units):
        wide = replace(row.weight, narrow="")  # what is held quantised alone is saved wide
        copy = sized(precision.master, wide.elements()) if precision.master else stored_bytes(precision, wide, WHOLE)
        kept = total((copy, *(state.bytes() for state in states(row, WHOLE, precision, model.value))))
        amount += model.value(row.count * kept)
    yield CHECKPOINT, truncate(amount)


def trainable(model: Whole) -> Exact:
    """Elements of the weights that have a gradient."""
    return sum(model.value(layers * weight.elements()) for layers, weight in model.weights() if not weight.frozen)


def steps(plan: Plan) -> Amount:
    """Optimizer steps of the run; the last one may be short."""
    return truncate(ceil_divide(plan.run.token_count or 0, plan.run.global_batch * plan.run.seq_len))


def counters(plan: Plan, model: Whole) -> Totals:
    """What PyTorch counts and saves for one micro-batch of the unsharded plan without recompute."""
    forward = sum(_counter_flops(model, unit, unit.forward) for unit in model.units)
    yield "flops.counter.forward", forward
    yield "flops.unmasked", unmasked(plan, model)
    later = sum(_counter_flops(model, unit, (*unit.saving.again, *unit.backward)) for unit in model.units)
    yield "flops.counter.step", forward + later  # parts of a loss are rebuilt under any policy
    saved: Exact = 0
    once: dict[str, Exact] = {}
    for unit in model.units:
        sizes = {tensor.storage: (model.value(tensor.bytes()), tensor.role) for tensor in unit.saving.saved}
        layer = sum(size for size, role in sizes.values() if role not in OF_ALL)
        if unit.name not in ENDS:
            yield f"saved.per_layer.{unit.name}", layer
            saved += model.value(unit.count) * layer
            once.update({name: size for name, (size, role) in sizes.items() if role in OF_ALL})
        else:
            once.update({name: size for name, (size, _) in sizes.items()})
    yield "saved.total", saved + sum(once.values())


def unmasked(plan: Plan, model: Whole) -> Amount:
    """Matmul FLOPs of one micro-batch's forward pass as if no mask were causal; windows and chunks stay."""
    seen = {group.name: _unmasked_share(plan, group) for group in plan.model.groups}
    last = plan.model.groups[-1].name  # layers that predict further tokens are of its kind
    work: Exact = 0
    for unit in model.units:
        core = [operation for operation in unit.forward if operation.region[-2:] == CORE]
        elsewhere = [operation for operation in unit.forward if operation.region[-2:] != CORE]
        attended, square = seen[unit.group if unit.group in seen else last]
        work += divide(attended * _counter_flops(model, unit, core), square)
        work += model.value(unit.count * total(operation.in_all(lambda run: run.useful()) for operation in elsewhere))
    return truncate(work)


def _unmasked_share(plan: Plan, group: Group) -> tuple[Amount, Amount]:
    """The keys that a query attends to but for the causal mask, and those that counters count of it."""
    attention, documents = group.attention, plan.run.documents
    length = plan.run.source_len if group.encodes_source else plan.run.seq_len
    if documents is None:
        return reach(attention, length), length
    takes_bounds = plan.kernels.attention in TOLD_BOUNDS
    square = causal_keys(documents, length, attention.window) if takes_bounds else length
    return document_keys(documents, length, attention.window), square


def reach(attention: Attention, tokens: Amount) -> Amount:
    """Of `tokens`, how many a query attends to but for the causal mask, and a decoder keeps."""
    return minimum(tokens, *(limit for limit in (attention.chunk, attention.window) if limit))


def _counter_flops(model: Whole, unit: Unit, operations: Sequence[Operation]) -> Exact:
    return model.value(unit.count * total(operation.in_all(lambda run: run.counted()) for operation in operations))


def state_bytes(plan: Plan) -> dict[str, Fraction]:
    """Bytes beside each trained parameter, by kind; factored statistics, of rows and columns, count nothing here."""
    precision = plan.precision
    return {
        "gradients": dtypes.size(precision.gradients),
        "master": dtypes.size(precision.master) if precision.master else Fraction(0),
        "optimizer": sum(per_parameter(plan.optimizer, precision).values(), Fraction(0)),
    }


def bytes_per_parameter(plan: Plan, model: Whole) -> Amount:
    """Bytes of state over parameters: of each weight in its format, of the trained ones gradient and states too.

    Rajbhandari et al. 2020, section 3.1, for a model of the plan's proportions of frozen weights and adapters.
    """
    state = sum(state_bytes(plan).values(), Fraction(0))
    sizes = [
        (average_bytes(plan.precision, weight) + (0 if weight.frozen else state), layers, weight)
        for layers, weight in model.weights()
    ]
    distinct = {size for size, _, _ in sizes}
    if len(distinct) == 1:
        return distinct.pop()
    total_bytes = sum(size * model.value(layers * weight.elements()) for size, layers, weight in sizes)
    return divide(total_bytes, whole_parameters(model))


TRAINED, PASSED, LEFT = 6, 4, 2  # FLOPs of a weight and token: three products, two where it is frozen, forward alone


def flops_per_token(plan: Plan, model: Whole) -> Amount:
    """FLOPs of a token: 6 a trained weight, 4 a frozen one that gradients pass through, 2 any other.

    Kaplan et al. 2020, section 2.1: a product in forward, and one in backward for each gradient that there is. Weights
    of an encoder see the tokens of the source, as many as go before each of the sequence.
    """
    of_source = {unit.name for unit in model.units if unit.group in {g.name for g in plan.model.encoder_groups}}
    passed = {(name, weight) for unit in model.units for name, weight in _gradient_weights(unit)}

    def flops_of(unit: str, weight: Tensor) -> int:
        return TRAINED if not weight.frozen else PASSED if (unit, weight.name) in passed else LEFT

    def tokens_seen(unit: str) -> Amount:
        return divide(plan.run.source_len, plan.run.seq_len) if unit in of_source else 1

    return sum(
        tokens_seen(unit) * flops_of(unit, weight) * model.value(layers * elements_used_by_token(weight))
        for unit, layers, weights in weights_by_unit(model.units)
        for weight in weights
    )


def _gradient_weights(unit: Unit) -> Iterator[tuple[str, str]]:
    """The weights of a unit that gradients pass on their way to what enters, by the set that has them."""
    name = ROOT if unit.name in ENDS else unit.name
    for operation in unit.written:
        if any(differentiable(tensor) and tensor.role == "activation" for tensor in operation.learned()):
            yield from ((name, str(tensor.parameter)) for tensor in operation.inputs if tensor.parameter)


def napkin(plan: Plan, model: Whole) -> Totals:
    """The estimate on a napkin: FLOPs a parameter and token at an assumed MFU, and the state-only capacity.

    Of a model of blocks the capacity alone: its weights meet each image at many places, not once a token.
    """
    labelled = plan.accelerator.memory_labelled * plan.cluster.devices
    yield "napkin.max_parameters", truncate(divide(labelled, bytes_per_parameter(plan, model)))
    if plan.model.of_blocks:
        return
    token_flops = flops_per_token(plan, model)
    yield "napkin.flops.token", token_flops
    if not plan.run.tokens:
        return
    work = token_flops * (plan.run.token_count or 0)
    yield "napkin.flops.run", work
    seconds = work / (plan.cluster.devices * peak(plan) * plan.assumptions.mfu)
    yield "napkin.time.run", seconds
    yield "napkin.days", seconds / DAY


def has_peak(plan: Plan) -> bool:
    """Whether the device multiplies in the plan's matmul dtype."""
    return dtypes.rate(plan.precision.multiplies) in plan.accelerator.peak


def peak(plan: Plan) -> float:
    """The dense peak of one device in the plan's matmul dtype, FLOP/s."""
    return plan.accelerator.peak[dtypes.rate(plan.precision.multiplies)]
