"""Contracts that every kind of operation keeps, over all operations of plans that together use every kind.

Every symbol stands for a prime of its own, so that a dimension in another's place gives another number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
import sympy

from ledger.books.evaluate import Exact, exact
from ledger.model import backward as fusion  # noqa: F401  # kinds are found as subclasses
from ledger.model.attention_cores import AttentionBackward, FusedAttention
from ledger.model.cache import StoredProduct
from ledger.model.collectives import Collective
from ledger.model.contraction import Contraction
from ledger.model.dims import LETTERS, symbol
from ledger.model.dispatch import Summed
from ledger.model.einsum_kernels import SizedDims, einsum_kernels
from ledger.model.einsums import parse
from ledger.model.elementwise import Pointwise
from ledger.model.formats import scale_bytes
from ledger.model.gated_delta import ButOneChunk
from ledger.model.images import Prefixed
from ledger.model.losses import Replicated
from ledger.model.operations import Operation, differentiable
from ledger.model.program import Program, program
from ledger.model.quantised import PASSING, QuantisedGather
from ledger.model.recompute import POLICIES
from ledger.model.recurrent import FusedScan
from ledger.model.schedule import roles
from ledger.model.serving import served_units
from ledger.model.tape import Concatenation, TensorParts
from ledger.model.tensors import Tensor
from ledger.model.update import update
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan, Recompute
from ledger.spec.windows import has_windows
from tests.model import plans

SPLIT_LLAMA = {**plans.layer(plans.LLAMA, mlp={"d_ff": 273}), "vocab": 213}
SPLIT_MIXTRAL = {
    **plans.layer(plans.MIXTRAL, mlp={"d_ff": 264, "bias": True, "experts": 9, "shared": {"d_ff": 87, "gated": True}}),
    "vocab": 213,
}
NINE = {"cluster": {"base": "h100-400g", "devices": 9, "devices_per_node": 9}}
TENSOR = {"cluster": {"base": "h100-400g", "devices": 3, "devices_per_node": 3}}
EIGHTS = {
    **plans.layer(plans.MIXTRAL, attention={"heads": 6, "kv_heads": 3, "head_dim": 32}, mlp={"d_ff": 544}),
    "d_model": 384,
}
NARROW = {"accelerator": "b200", "run": {"seq_len": 48, "micro_batch": 2, "global_batch": 2}}
EVEN = {"run": {"seq_len": 64, "micro_batch": 3, "global_batch": 3}}
INT4 = {"base": "bf16-true", "weights": {"base": "int4"}}
# Moves rows by maps, and rotates latent queries in place.
MEGATRON = {"base": "megatron-core-2025", "accumulation": "add", "dummy_gradients": False}
PLANS: tuple[plans.Mapped, ...] = (
    {"model": plans.GPT2, "kernels": {"attention": "eager", "norm": "eager", "activation": "eager"}},
    {"model": plans.GPT2, "kernels": {"residual": "fused", "attention": "math"}},
    {"model": plans.GEMMA2, "precision": "bf16-autocast", "kernels": {"attention": "efficient", "norm": "eager"}},
    {"model": plans.NEOX, "kernels": {"activation": "eager", "loss": "fused"}},
    {"model": plans.LLAMA, "stack": "pytorch-fsdp2-compile-2025"},
    {"model": plans.LLAMA, "stack": "torchtitan-compile-2024"},
    {"model": plans.LATENT_COMPLEX, "kernels": {"norm": "eager", "attention": "cudnn"}},
    {"model": plans.LATENT_KEYS, "kernels": {"attention": "eager"}},
    {"model": plans.SINKS, "kernels": {"attention": "eager"}},
    {"model": plans.SINKS, "kernels": {"attention": "cudnn_grouped"}},
    {"model": plans.LLAMA4, "kernels": {"norm": "eager"}},
    {"model": plans.OLMO2, "kernels": {"attention": "math"}},
    {"model": plans.PHI},
    {
        "model": plans.T5,
        "kernels": {"attention": "eager"},
        "run": {"seq_len": 37, "source_len": 53, "micro_batch": 3, "global_batch": 3},
    },
    {"model": plans.VIT, "run": {"micro_batch": 3, "global_batch": 3}},
    *(
        {"model": model, "kernels": {"scan": scan, "norm": "eager"}}
        for model in (plans.MAMBA2, plans.GATED_DELTA)
        for scan in ("fused", "eager")
    ),
    {"model": plans.LLAMA, "kernels": {"loss": "softmax_in_place"}, "recompute": {"components": ["mlp", "norm"]}},
    {"model": plans.LLAMA, "kernels": {"loss": "fused_apart"}},
    {"model": plans.LLAMA, "stack": "fsdp-qlora-2024"},
    {"model": plans.LLAMA, "kernels": {"loss": "chunked"}, **EVEN},
    {"model": plans.LLAMA, "kernels": {"loss": "fused_linear", "loss_chunks": 4}, **EVEN},
    {"model": plans.LLAMA, "train": {"lora": {"rank": 5, "targets": ["q", "down"]}}, "recompute": "full"},
    {
        "model": plans.LLAMA,
        "train": {"lora": {"rank": 5, "targets": ["q", "down"]}},
        "precision": {"base": "bf16-true", "weights": {"base": "nf4_double"}},
        "recompute": "full",
    },
    {
        "model": plans.MIXTRAL,
        "train": {"lora": {"rank": 5, "targets": ["q"]}},
        "precision": {"base": "bf16-true", "weights": {"base": "int8", "adapters": "fp32"}},
        "kernels": {"experts": "grouped_mm"},
    },
    {"model": {**plans.LLAMA, "multi_token": {"depth": 1}}},
    {"model": EIGHTS, **NARROW, "precision": "fp8-delayed"},
    {"model": EIGHTS, **NARROW, "precision": "mxfp8"},
    {"model": EIGHTS, **NARROW, "precision": "fp8-block", "recompute": "full"},
    {
        "model": EIGHTS,
        **NARROW,
        "precision": {"base": "fp8-block", "stored": {"core": {"format": "e5m6", "block": [1, 32]}}},
        "kernels": {"attention": "cudnn_grouped", "weighing": "activation"},
        "recompute": {"components": ["norm", "activation"]},
    },
    {"model": plans.QWEN2_EXPERTS, "kernels": {"experts": "eager"}},
    {"model": plans.LLAMA4_MIXED, "kernels": {"experts": "dense", "norm": "eager"}},
    {"model": plans.LLAMA4_EXPERTS, "kernels": {"experts": "batched_mm"}},
    {"model": plans.DEEPSEEK3, "kernels": {"experts": "batched_mm", "activation": "eager"}},
    {
        "model": plans.layer(
            SPLIT_MIXTRAL, mlp={"activation": "clamped_swiglu", "router": {"normalize": True, "groups": 3}}
        ),
        **NINE,
        "parallelism": {"data": 3, "tensor": 3, "expert": 3, "sequence": "save_gathered", "zero": 3},
        "run": {"seq_len": 39, "micro_batch": 3, "global_batch": 9},
        "assumptions": {"expert_imbalance": 1.5},
    },
    {
        "model": plans.layer(SPLIT_MIXTRAL, mlp={"router": {"scores": "sigmoid_of_chosen", "scales": "input"}}),
        **NINE,
        "parallelism": {"data": 3, "tensor": 3, "expert": 3},
        "run": {"seq_len": 39, "micro_batch": 3, "global_batch": 9},
    },
    {
        "model": plans.layer(SPLIT_MIXTRAL, mlp={"capacity_factor": 1.25, "router": {"scores": "sigmoid"}}),
        **NINE,
        "parallelism": {"data": 3, "context": 3, "expert": 3},
        "run": {"seq_len": 39, "micro_batch": 3, "global_batch": 9},
    },
    {
        "model": plans.layer(SPLIT_MIXTRAL, mlp={"bias": False, "shared": {"d_ff": 87}}),
        **NINE,
        "parallelism": {"data": 3, "tensor": 3, "expert": 3, "sequence": "regather"},
        "run": {"seq_len": 39, "micro_batch": 3, "global_batch": 9},
        "stack": MEGATRON,
    },
    {"model": plans.LATENT, "stack": MEGATRON},
    *(
        {
            "model": {**plans.layer(plans.LATENT, mlp={"d_ff": 273}), "vocab": 213},
            **TENSOR,
            "parallelism": {"tensor": 3, "sequence": sequence},
            "run": {"seq_len": 39, "micro_batch": 3, "global_batch": 3},
        }
        for sequence in ("off", "save_gathered")
    ),
    {
        "model": SPLIT_LLAMA,
        **TENSOR,
        "parallelism": {"tensor": 3, "sequence": "regather"},
        "run": {"seq_len": 39, "micro_batch": 3, "global_batch": 3},
    },
    *(
        {
            "model": {
                **plans.layer(plans.LLAMA, attention={"heads": 6, "kv_heads": 3, "head_dim": 32}, mlp={"d_ff": 576}),
                "d_model": 384,
                "vocab": 213,
            },
            **NARROW,
            **TENSOR,
            "parallelism": {"tensor": 3, "sequence": "regather"},
            "precision": precision,
        }
        for precision in ("fp8-delayed", "fp8-current", "fp8-block")
    ),
    {
        "model": SPLIT_LLAMA,
        **TENSOR,
        "parallelism": {"tensor": 3, "sequence": "save_gathered"},
        "stack": {"base": "pytorch-fsdp2-2025", "gathered_logits": True},
        "run": {"seq_len": 39, "micro_batch": 3, "global_batch": 3},
    },
    {
        "model": SPLIT_LLAMA,
        **TENSOR,
        "parallelism": {"data": 3, "zero": 3},
        "run": {"seq_len": 39, "micro_batch": 3, "global_batch": 9},
    },
    {
        "model": SPLIT_LLAMA,
        **TENSOR,
        "parallelism": {"context": 3, "context_exchange": "ring"},
        "run": {"seq_len": 39, "micro_batch": 3, "global_batch": 9},
    },
)
SIZES: dict[sympy.Symbol, Exact] = {}


def prime(symbol: sympy.Symbol) -> int:
    """A prime for this symbol alone; a token uses (`T`) fewer experts than there are."""
    few = str(symbol).split("_")[0] == "T"
    return int(SIZES.setdefault(symbol, sympy.prime(len(SIZES) + (1 if few else 10 * len(LETTERS)))))


def value(expr: sympy.Expr) -> Exact:
    """The number of a formula over primes."""
    return exact({symbol: prime(symbol) for symbol in expr.free_symbols})(expr)


@cache
def programs() -> tuple[tuple[Plan, Program], ...]:
    """The programs of all plans above."""
    found = [load_plan(json.dumps({**plans.ONE_DEVICE, **parts}, indent=1)) for parts in PLANS]
    return tuple((plan, program(plan, role)) for plan in found for role in roles(plan))


def written() -> Iterator[Operation]:
    """Forward operations as their components wrote them."""
    for _, one in programs():
        for unit in one.units:
            yield from unit.written


def served() -> Iterator[Operation]:
    """What passes of serving run: prompts, and sequences that are decoded, with weights in a format of storage."""
    serve = {"prompt": "39 tokens", "output": "3 tokens", "concurrency": 3}
    for model in (plans.LLAMA, plans.MIXTRAL, plans.LATENT, plans.MAMBA2, plans.GATED_DELTA):
        parts = {**plans.ONE_DEVICE, "model": model, "serve": serve, "precision": INT4}
        trained = ("run", "optimizer", "stack", "recompute")
        text = json.dumps({key: part for key, part in parts.items() if key not in trained}, indent=1)
        plan = load_plan(text)
        for decodes in (False, True):
            for unit in served_units(plan, roles(plan)[0], decodes=decodes):
                yield from unit.forward


def everything() -> Iterator[Operation]:
    """Every operation that runs, in any phase; of questions, sums over dims and a product that sums nothing."""
    sized = SizedDims({"rows": 7, "columns": 5}, "bf16")
    for by in ("sum", "mean"):
        yield from einsum_kernels(parse("rows columns -> rows"), "asked", sized, (), by)
    yield from einsum_kernels(parse("rows, columns -> rows columns"), "asked", sized, ("activation", "weight"))
    yield from served()
    for plan, one in programs():
        for unit in one.units:
            yield from (*unit.written, *unit.forward, *unit.backward, *unit.saving.again)
        yield from (exchange for *_, exchange in one.exchanges)
        yield from (send for *_, send in one.sends)
        yield from (step for *_, step in update(plan, one.units, one.sharding, value))


def kinds(base: type[Operation] = Operation) -> set[type[Operation]]:
    """All kinds of operation there are."""
    return {base, *(kind for child in base.__subclasses__() for kind in kinds(child))} - {Operation}


def test_every_kind_is_covered() -> None:
    """A new kind of operation comes with a plan here that uses it."""
    assert {type(operation) for operation in everything()} == kinds()


def handed_on(operation: Operation) -> set[str]:
    """Gradients that are no tensor of their own."""
    return {name for name, _ in operation.shared()}


def test_every_operand_gets_its_gradient() -> None:
    """Each differentiable input has a gradient that backward writes, or that is handed on; nothing else is written.

    But temporaries are, and narrow copies, which come with their scales.
    """
    for operation in written():
        wanted = {tensor.gradient.name for tensor in operation.learned() if differentiable(tensor)}
        read = {tensor.name for step in operation.gradients() for tensor in step.inputs}
        results = [tensor for step in operation.gradients() for tensor in step.outputs if tensor not in step.passing()]
        missing = wanted - {tensor.name for tensor in results} - handed_on(operation)
        assert not missing, f"{operation.name} ({type(operation).__name__}) gives no {missing}"
        assert {tensor.name for tensor in results if tensor.role != PASSING} <= wanted | read, operation.name


def test_gradients_have_the_shape_of_what_they_are_gradients_of() -> None:
    """Same dims in the same order, and what is handed on unchanged has as many elements as upstream."""
    for operation in written():
        inputs = {tensor.gradient.name: tensor for tensor in operation.inputs}
        for step in operation.gradients():
            for made in step.outputs:
                if made.name in inputs:
                    assert made.dims == inputs[made.name].dims, operation.name
                    assert value(made.elements()) == value(inputs[made.name].elements())
        for name, storage in operation.shared():
            held = operation.output if storage == operation.output.gradient.name else inputs[name]
            if isinstance(operation, Concatenation):
                assert value(inputs[name].elements()) < value(held.elements()), operation.name
            elif isinstance(operation, Summed):  # seen once for each summand
                (summed,) = set(operation.inputs[0].dims) - set(operation.output.dims)
                assert value(inputs[name].elements()) == value(held.elements()) * value(summed.symbol), operation.name
            else:
                assert value(inputs[name].elements()) == value(held.elements()), operation.name


def test_what_is_taken_apart_or_joined_is_all_of_it() -> None:
    """The parts of a tensor have its elements together; a weight beside activations is there once for each row."""
    found = [operation for operation in written() if isinstance(operation, TensorParts | Concatenation)]
    assert {type(operation) for operation in found} == {TensorParts, Concatenation, Prefixed}
    for operation in found:
        whole, parts = operation.inputs, operation.outputs
        if isinstance(operation, Concatenation):
            whole, parts = parts, tuple(tensor for tensor in whole if tensor.role == "activation")
        # But for the rows after the end of a sequence, and the tokens that no image is classified by.
        if operation.name in {"attention/convolution.taken", "final_norm/norm.taken"}:
            assert value(parts[0].elements()) < value(whole[0].elements())
            continue
        beside = [tensor for tensor in operation.inputs if tensor.role == "weight"]
        dropped = operation.name == "attention/softmax.taken"  # the share of the sink is thrown away
        if isinstance(operation, Prefixed):  # whose sequence is one token longer, by a symbol of its own
            batch, tokens, width = (dim.symbol for dim in whole[0].dims)
            longer = whole[0].elements().subs(tokens, parts[0].dims[1].symbol + 1)
            assert sympy.expand(longer - parts[0].elements()) == batch * width
            continue
        rows = value(parts[0].elements()) // value(parts[0].local(parts[0].dims[-1])) if beside or dropped else 0
        assert sum(value(part.elements()) for part in parts) + rows == value(whole[0].elements()), operation.name


def contractions() -> list[Contraction]:
    """Every forward contraction, once by name and shape."""
    return [operation for operation in written() if isinstance(operation, Contraction)]


def test_a_contraction_costs_two_flops_a_point() -> None:
    """2 x the product of all dims, which is 2 b m n k of its matrix product; a mask keeps its density of them."""
    for operation in contractions():
        shape = operation.shape()
        points = value(operation.points())
        assert value(operation.counted()) == 2 * points
        assert points == value(shape.batch) * value(shape.m) * value(shape.n) * value(shape.k)
        assert value(operation.spent()) == 2 * points
        assert (value(operation.repeated()) > 0) == bool(operation.copies)
        assert 0 < value(operation.density) <= 1


# Where every head has keys of its own, products read them as heads, and their symbol is another one.
UNGROUPED = {symbol("kv_heads", suffix): symbol("heads", suffix) for suffix in ("", "encoder", "decoder")}


def test_a_contraction_reads_and_writes_its_shape() -> None:
    """b m k and b k n are its operands, b m n its result (a bias rides along); a window is read where it overlaps."""
    for operation in contractions():
        if has_windows(operation.einsum):
            continue
        shape = operation.shape()
        batch, m, n, k = (value(size.subs(UNGROUPED)) for size in (shape.batch, shape.m, shape.n, shape.k))
        found = sorted(value(one.elements().subs(UNGROUPED)) for one in (*operation.inputs[:2], operation.output))
        assert found == sorted((batch * m * k, batch * k * n, batch * m * n)), operation.name


def test_both_gradients_of_a_contraction_cost_what_it_costs() -> None:
    """The gradient towards either operand sums over the same points, so backward is twice forward.

    But what the first of the chunks in a loop reads, or the last one leaves, has none.
    """
    for operation in contractions():
        steps = [step for step in operation.gradients() if isinstance(step, Contraction)]
        assert len(steps) == sum(differentiable(tensor) for tensor in operation.learned()[:2])
        for step in steps:
            share: Exact = 1
            if isinstance(step, ButOneChunk):
                chunks = value(operation.output.named("chunks")[0].symbol)
                share = Fraction(int(chunks) - 1, int(chunks))
            for cost in ("counted", "useful", "masked", "repeated"):
                assert value(getattr(step, cost)()) == share * value(getattr(operation, cost)()), operation.name


def test_a_fused_scan_is_its_contractions() -> None:
    """Forward all, backward both gradients of all and some again; what passes between kernels is moved twice."""
    found = [operation for operation in written() if isinstance(operation, FusedScan)]
    assert found
    for operation in found:
        (step,) = operation.gradients()
        assert value(operation.counted()) == sum(value(part.counted()) for part in operation.parts)
        again = sum(value(part.counted()) for part in operation.rebuilt)
        assert value(step.counted()) == 2 * value(operation.counted()) + again
        assert value(step.useful()) - value(step.redone()) == 2 * value(operation.useful())
        alone = replace(operation, between=())
        between = sum(value(tensor.bytes()) for tensor in operation.between)
        assert value(operation.traffic()) == value(alone.traffic()) + 2 * between
        assert value(step.traffic()) == value(alone.gradients()[0].traffic()) + 4 * between


def test_fused_attention_is_its_two_contractions() -> None:
    """Forward both; backward both gradients of both, and the scores again: 2.5 times forward for equal widths."""
    found = [operation for operation in written() if isinstance(operation, FusedAttention)]
    assert found
    for operation in found:
        (step,) = (step for step in operation.gradients() if isinstance(step, AttentionBackward))
        assert isinstance(step, AttentionBackward)
        forward, backward = value(operation.counted()), value(step.counted())
        assert forward == sum(value(part.counted()) for part in operation.parts)
        assert backward == 2 * forward + value(operation.parts[0].counted())
        assert value(step.useful()) - value(step.redone()) == 2 * value(operation.useful())
        query, _, values = operation.inputs[:3]
        width, wide = value(query.dims[-1].symbol), value(values.dims[-1].symbol)
        assert value(operation.output.elements()) * width == value(query.elements()) * wide
        assert (2 * backward == 5 * forward) == (width == wide)
        assert values.dtype == operation.output.dtype


def test_collectives_come_back_as_their_adjoints() -> None:
    """The adjoint of a gather is a scatter of the same whole, and twice adjoint is the same transfer again.

    But of what all devices then do the same with: there a device copies its own part, and nothing is sent.
    """
    found = [operation for operation in written() if isinstance(operation, Collective)]
    assert {operation.collective for operation in found} >= {"all_gather", "reduce_scatter", "all_reduce"}
    for operation in found:
        for step in operation.gradients():
            assert isinstance(step, Pointwise if isinstance(operation, Replicated) else Collective)
            if isinstance(step, Pointwise):
                assert value(step.inputs[0].elements()) == value(step.outputs[0].elements()), operation.name
                assert value(step.outputs[0].elements()) == value(operation.inputs[0].elements()), operation.name
                continue
            if step.collective == "none":
                continue
            assert value(step.inputs[0].elements()) == value(operation.output.elements()), operation.name
            assert value(step.outputs[0].elements()) == value(operation.inputs[0].elements()), operation.name
            sizes = {value(operation.payload()), value(step.payload())}
            narrow = isinstance(operation, QuantisedGather)  # whose gradient comes back in its own dtype
            assert narrow or operation.collective in {"all_reduce", "none"} or len(sizes) == 1, operation.name


def test_traffic_is_every_operand_once() -> None:
    """Elementwise kernels, contractions and attention touch each operand once, in its own dtype, where one runs.

    Narrow operands bring their scales; what only has to be there meanwhile is an operand that is not touched.
    """
    for operation in everything():
        if isinstance(operation, Pointwise | Contraction | FusedAttention) and operation.pieces == 1:
            scales = [scale for of in getattr(operation, "narrow", ()) for scale in of.forward[1:]]
            assert set(operation.untouched()) <= set(operation.inputs[1:]), operation.name
            moved = sum(value(tensor.bytes()) for tensor in (*operation.inputs, *operation.outputs, *scales))
            if isinstance(operation, StoredProduct):
                weight = operation.inputs[1]
                moved += sum(map(value, scale_bytes(weight.dtype, weight)))
            idle = sum(value(tensor.bytes()) for tensor in operation.untouched())
            assert value(operation.traffic()) + idle == moved, operation.name


def test_what_passes_or_is_not_touched_is_no_operand_of_backward() -> None:
    """A temporary is a result beside the main one; what is only there meanwhile is an input that is not saved."""
    passing = [operation for operation in everything() if operation.passing()]
    waiting = [operation for operation in everything() if operation.untouched()]
    assert passing
    assert waiting
    for operation in passing:
        assert set(operation.passing()) <= set(operation.outputs[1:]), operation.name
    for operation in waiting:
        assert set(operation.untouched()) <= set(operation.inputs) - set(operation.saves), operation.name


def test_a_shard_is_a_part() -> None:
    """A split tensor's elements x the degrees of its axes are its whole."""
    for operation in everything():
        for tensor in (*operation.inputs, *operation.outputs):
            whole = value(sympy.Mul(*[dim.symbol for dim in tensor.dims]))
            degrees = value(
                sympy.Mul(*[sympy.Symbol(_letter(axis), positive=True, integer=True) for _, axis in _cut(tensor)])
            )
            assert value(tensor.elements()) * degrees == whole, tensor.name


def _cut(tensor: Tensor) -> list[tuple[str, str]]:
    names = {dim.name for dim in tensor.dims}
    return [(name, axis) for name, axis in tensor.split if name in names]


def _letter(axis: str) -> str:
    return next(row.letter for row in LETTERS if row.name == axis)


@pytest.mark.parametrize("policy", ["none", "full", "selective"])
def test_what_is_kept_or_rebuilt_is_what_is_saved(policy: str) -> None:
    """Whatever the policy, backward finds every storage that it would find without recomputation."""
    for _, one in programs():
        for unit in one.units:
            saved = {tensor.storage for tensor in POLICIES["none"](unit.written, Recompute()).saved}
            kept = POLICIES[policy](unit.written, Recompute())
            assert saved <= {tensor.storage for tensor in (*kept.saved, *kept.rebuilt)}
