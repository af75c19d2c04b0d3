"""What a device that serves holds: weights, the cache as outputs grow, and the tensors of its largest pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil

import sympy

from ledger.books.evaluate import Value
from ledger.books.memory.outside import CONTEXT, FRAGMENTATION, LIBRARY, pool, stated_at
from ledger.books.results import Moment, Outside
from ledger.books.serving import lengths
from ledger.books.serving.passes import ServedRole, Shape, decode_shape, mean_prompt_shape
from ledger.books.serving.steady import Service
from ledger.model.cached_attention import ENTRY
from ledger.model.causes import ENDS, OUTPUT, Cause
from ledger.model.dims import symbol
from ledger.model.formats import stored_bytes
from ledger.model.operations import Operation
from ledger.model.recurrent import STATE, WINDOW
from ledger.model.sharding import Sharding
from ledger.model.tensors import BUFFER, Tensor, product
from ledger.model.unit import Unit
from ledger.spec.plan import Attention, Plan, Serve

WHOLE = Sharding(0, (), False, False, frozenset(), False)
Size = Callable[[Tensor], sympy.Expr]  # bytes or elements
CACHE = "attention/cache"  # the account of what waits
CATEGORIES = ("weights", "cache", "activations", "logits")
LARGEST = 12  # that are listed of each moment
MORE = 10**9  # sequences in flight that no memory holds


@dataclass(frozen=True)
class Stock:
    """Bytes that something takes, and their formula."""

    bytes: int
    formula: sympy.Expr


@dataclass(frozen=True)
class Held:
    """Bytes that one device of a role holds for so many sequences of its replica, all as long as they get."""

    served: ServedRole
    sequences: int  # of a replica, on each of its stages

    @property
    def plan(self) -> Plan:
        """The plan of the service, from the role that is held."""
        return self.served.plan

    @cached_property
    def weights(self) -> Mapping[Cause, Stock]:
        """Weights by what they are of, each storage once; a layer's as often as the device has the layer."""
        value, stocks = self.served.value(_one_token_shape(self.plan)), dict[Cause, Stock]()
        for unit in self.served.decode.units:
            for weight in unit.weights:
                cause = Cause("" if unit.name in ENDS else unit.name, weight.name)
                amount = unit.count * stored_bytes(self.plan.precision, weight, WHOLE)
                stocks.setdefault(cause, Stock(ceil(value(amount)), amount))
        return stocks

    def cache(self, grown: Fraction) -> dict[Cause, Stock]:
        """The cache of each group of layers, sequences having this share of their outputs; a shared prefix is once."""
        served, stocks = serve_of(self.plan), dict[Cause, Stock]()
        value = self.served.value(_one_token_shape(self.plan))
        for unit, token_bytes, attention in cached_layers(self.served):
            prefix = lengths.kept_tokens(attention, served.prefix)

            mean = lengths.mean_kept(served, attention, grown, served.prefix)
            tokens = self.sequences * mean + prefix
            formula = product(sympy.Rational(tokens.numerator, tokens.denominator), token_bytes)
            stocks[Cause(unit.name, CACHE)] = Stock(ceil(value(formula)), formula)
        for unit, name, state_bytes in kept_states(self.served):
            formula = product(self.sequences + bool(served.prefix), state_bytes)  # that of the prefix is begun from
            stocks[Cause(unit.name, name)] = Stock(ceil(value(formula)), formula)
        return stocks

    @cached_property
    def full_cache(self) -> Mapping[Cause, Stock]:
        """The cache once all outputs are complete."""
        return self.cache(Fraction(1))

    @cached_property
    def activations(self) -> int:
        """The largest sum of what one operation of a layer reads and writes, and the stream beside it."""
        prompt = mean_prompt_shape(serve_of(self.plan))
        tokens = prompt.tokens + Fraction(self.sequences, self.plan.parallelism.pipeline)
        both = Shape(Fraction(1), tokens, Fraction(1), prompt.attended, prompt.read)
        value = self.served.value(both)
        units = [unit for unit in self.served.prefill.units if unit.name != OUTPUT]
        return max((ceil(_largest_traffic(unit, value)) for unit in units), default=0)

    @cached_property
    def logits(self) -> int:
        """What scoring the next token of all sequences of a pass reads and writes."""
        shape = decode_shape(serve_of(self.plan), Fraction(self.sequences, self.plan.parallelism.pipeline))
        value = self.served.value(shape)
        return max((ceil(_largest_traffic(u, value)) for u in self.served.decode.units if u.name == OUTPUT), default=0)

    @cached_property
    def moments(self) -> tuple[Moment, ...]:
        """How memory fills: weights loaded, prompts read, answers half and wholly given, the next tokens scored."""
        none, half = self.cache(Fraction(0)), self.cache(Fraction(1, 2))
        rows: Sequence[tuple[str, str, Mapping[Cause, Stock], int, int]] = (
            ("loaded", "weights loaded", {}, 0, 0),
            ("prompts", "all prompts in the cache", none, self.activations, 0),
            ("half", "answers half given", half, self.activations, 0),
            ("full", "all answers given", self.full_cache, self.activations, 0),
            ("sampling", "next tokens scored, answers given", self.full_cache, 0, self.logits),
        )
        return tuple(self._moment(*row) for row in rows)

    def _moment(self, name: str, title: str, cache: Mapping[Cause, Stock], activations: int, logits: int) -> Moment:
        amounts = (held_bytes(self.weights), held_bytes(cache), activations, logits)
        named = [(cause.account, stock.bytes) for cause, stock in (*self.weights.items(), *cache.items())]
        details = sorted(named, key=lambda holding: (-holding[1], holding[0]))[:LARGEST]
        return Moment(name, title, dict(zip(CATEGORIES, amounts, strict=True)), tuple(details))

    @cached_property
    def peak(self) -> Moment:
        """The moment with the most bytes of tensors, which decides whether the plan fits."""
        return max(self.moments, key=lambda moment: moment.total)

    @cached_property
    def outside(self) -> tuple[Outside, ...]:
        """What lies beside the tensors: a workspace of the matmul library, the allocator's pool, the driver's own."""
        library, stack = self.plan.accelerator.matmul_workspace, self.plan.stack
        parts = (
            Outside("workspace of the matmul library", library, LIBRARY),
            Outside(
                "pool of the allocator", pool(self.peak.total + library, stack), stated_at(self.plan, FRAGMENTATION)
            ),
            Outside("context, libraries and communicators", stack.context, stated_at(self.plan, CONTEXT)),
        )
        return tuple(part for part in parts if part.bytes)

    @property
    def reserved(self) -> int:
        """Bytes that the driver reports at the fullest moment."""
        return self.peak.total + sum(part.bytes for part in self.outside)


def held_bytes(stocks: Mapping[Cause, Stock]) -> int:
    """Bytes of all stocks together."""
    return sum(stock.bytes for stock in stocks.values())


def serve_of(plan: Plan) -> Serve:
    """The lengths and the load that a plan serves; ValueError of a plan that trains."""
    if plan.serve is None:
        raise ValueError("a plan that trains serves nothing")
    return plan.serve


def devices_memory(roles: Sequence[ServedRole], concurrency: float) -> tuple[Held, ...]:
    """What devices of each role hold with so many sequences in flight over all replicas, the fullest replica's."""
    replicas = roles[0].plan.parallelism.data
    return tuple(Held(served, max(1, ceil(concurrency / replicas))) for served in roles)


def cached_layers(served: ServedRole, size: Size = Tensor.bytes) -> Iterator[tuple[Unit, sympy.Expr, Attention]]:
    """Of each group of layers on a device: what a token takes in the cache of all of them, and its attention."""
    groups = {group.name: group.attention for group in served.plan.model.groups}
    sequence = symbol("batch") * symbol("seq")
    for unit in served.decode.units:
        for operation in unit.forward:
            for entry in (tensor for tensor in operation.outputs if tensor.name == ENTRY):
                yield unit, unit.count * size(entry) / sequence, groups[unit.group]


def kept_states(served: ServedRole, size: Size = Tensor.bytes) -> Iterator[tuple[Unit, str, sympy.Expr]]:
    """Of each group of layers on a device: what states, and windows, of a sequence take, however long it is."""
    for unit in served.decode.units:
        for operation in unit.forward:
            for state in (tensor for tensor in operation.outputs if tensor.name in (STATE, WINDOW)):
                yield unit, state.name, unit.count * size(state) / symbol("batch")


def _one_token_shape(plan: Plan) -> Shape:
    return decode_shape(serve_of(plan), Fraction(1))


def _largest_traffic(unit: Unit, value: Value) -> Fraction:
    """Bytes of what the largest operation reads and writes beside weights and cache, and of the stream beside it."""
    stream = unit.forward[-1].outputs[0] if unit.name not in ENDS else None
    sizes = (sum(value(tensor.bytes()) for tensor in _distinct_tensors(operation)) for operation in unit.forward)
    return Fraction(max(sizes, default=0)) + Fraction(value(stream.bytes()) if stream else 0)


def _distinct_tensors(operation: Operation) -> Iterator[Tensor]:
    seen: set[str] = set()
    for tensor in (*operation.inputs, *operation.outputs):
        if tensor.role not in ("weight", BUFFER) and tensor.storage not in seen:
            seen.add(tensor.storage)
            yield tensor


# --- sequences that an engine takes at once ---


def room(service: Service) -> int:
    """The most sequences in flight over all replicas whose whole outputs there is room for; 0 where for none.

    No more than the engine decodes in a step (`max_num_seqs`).
    """
    engine = service.plan.stack.engine
    few, many = 0, 1
    while many < MORE and _fits(service, many):
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if _fits(service, middle) else (few, middle)
    return (min(few, engine.sequences) if engine.sequences else few) * service.replicas


def _fits(service: Service, per_replica: int) -> bool:
    engine, capacity = service.plan.stack.engine, service.plan.accelerator.memory
    for role in service.roles:
        device = Held(role, per_replica)
        if device.reserved > capacity:
            return False
        cache = held_bytes(device.full_cache)
        all_but_cache = device.reserved - cache + device.activations * (_largest_step(service, per_replica) - 1)
        if engine.memory_of == "left" and cache > engine.memory * (capacity - all_but_cache):
            return False
        if engine.memory_of == "device" and cache + all_but_cache > engine.memory * capacity:
            return False
    return True


def _largest_step(service: Service, per_replica: int) -> float:
    """Tokens of the largest step that buffers are laid out for, over those of one prompt and all sequences."""
    tokens = float(mean_prompt_shape(service.serve).tokens) + per_replica / service.plan.parallelism.pipeline
    return max(1.0, service.plan.stack.engine.tokens / tokens)
