"""The kernels of a pass of a service, one by one, each with its times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ledger.books import prices
from ledger.books.entries import Ledger
from ledger.books.evaluate import Value
from ledger.books.kernels import KernelCall, kernel_calls, price_call, require_peak
from ledger.books.prices import KernelWork
from ledger.books.results import KernelTime
from ledger.model import dtypes
from ledger.model.causes import ENDS
from ledger.model.dims import symbol
from ledger.spec.documents import WRITES_SCORES
from ledger.spec.engine import Engine
from ledger.spec.kernel_classes import (
    ATTENTION,
    CAST,
    COPY,
    DECODE,
    ELEMENTWISE,
    FORWARD,
    GROUPED,
    KERNEL_FAMILIES,
    MATMUL,
    NORM_FORWARD,
    NUMBER_FORMATS,
    OVER_PROMPTS,
    REDUCTION,
    ROTARY,
    ROW_FORMATS,
    SOFTMAX,
    STORED_FORMATS,
    KernelClass,
)
from ledger.spec.plan import Attention, Plan
from ledger.spec.precision import STORED_ONLY

# Products that read one tensor, and that a stack may run as one, by what it joins (`stack.projections`).
ATTENTION_PRODUCTS, GATED = ("attention/q", "attention/k", "attention/v"), ("mlp/gate", "mlp/up")
JOINED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "attention": (ATTENTION_PRODUCTS,),
    "joined": (ATTENTION_PRODUCTS, GATED),
}


WIDE = 2.0  # bytes of a weight that was written out wide
SINGLE = 4.0  # bytes of fp32
HALF = "fp16"
FEW_ROWS = 256  # that measurements of products of few rows have at most; those of others begin at 512
STREAMED = tuple(kind.family for kind in (ELEMENTWISE, NORM_FORWARD, ROTARY))  # kernels over the activations alone
UNKNOWN_L2 = 2.0  # bandwidth of the last cache over that of memory: 1.8 and 1.9 on H100 and A100


def priced_rows(ledger: Ledger, plan: Plan, value: Value) -> Iterator[KernelTime]:
    """Every kernel and transfer of a pass with its price."""
    calls = list(kernel_calls(ledger, value))
    for group in JOINED.get(plan.stack.projections, ()):
        calls = join_calls(calls, group)
    for call in calls:
        for widened in widening(repeated(as_decoded(call, plan), plan), plan):
            for part in unfused(widened, plan, value):
                for kernel in converted(part, plan):
                    yield limited(price_call(kernel, plan), kernel, plan)


def join_calls(calls: Sequence[KernelCall], names: Sequence[str]) -> list[KernelCall]:
    """The calls with those of these names in one unit as one product, as wide as all of them together."""
    products: list[KernelCall] = []
    first: dict[str, int] = {}
    for call in calls:
        unit = call.cause.unit
        if call.cause.name not in names or call.work is None:
            products.append(call)
        elif unit in first:
            before = products[first[unit]]
            products[first[unit]] = replace(before, work=side_by_side(before.work or call.work, call.work))
        else:
            first[unit] = len(products)
            products.append(call)
    return products


def side_by_side(left: KernelWork, right: KernelWork) -> KernelWork:
    """Two products of one operand: what both read of it is read once."""
    shared = NUMBER_FORMATS[left.dtype] * left.batch * left.m * left.k
    return replace(left, flops=left.flops + right.flops, bytes=left.bytes + right.bytes - shared, n=left.n + right.n)


def repeated(call: KernelCall, plan: Plan) -> KernelCall:
    """A call of attention over a cache, whose kernel may read a head anew for every head of queries that shares it.

    All but the first of them find it in the last cache before memory, and take what that one needs, if it is longer.
    """
    engine, device = plan.stack.engine, plan.accelerator
    if engine.cache_reads != "each_head" or not is_cached_attention(call.kind) or call.work is None:
        return call
    heads = plan.model.group_of(call.cause.unit).attention
    group = heads.heads // heads.kv_heads
    if group in engine.shared_groups:
        return call
    faster = (device.l2_bandwidth or UNKNOWN_L2 * device.bandwidth) / device.bandwidth
    return replace(call, work=replace(call.work, bytes=call.work.bytes * max(1.0, group / faster)))


def widening(call: KernelCall, plan: Plan) -> Iterator[KernelCall]:
    """A product of a prompt with stored weights: as fast as its kernel widens them, or after they are written wide."""
    stored = plan.precision.weights.base in STORED_ONLY and call.cause.unit not in ENDS
    if call.work is None or call.when == DECODE or not stored or call.work.kind.family != MATMUL:
        yield call
        return
    work, engine = call.work, plan.stack.engine
    if not engine.widens:
        yield from as_stored(call, work, engine)
        return
    weights = work.n * work.k
    stored = max(0.0, work.bytes - WIDE * (work.batch * work.m * (work.n + work.k)))
    yield replace(
        call, kind=CAST, work=KernelWork(CAST, flops=weights, bytes=stored + WIDE * weights), multiplies=False
    )
    yield replace(call, work=replace(work, bytes=work.bytes - stored + WIDE * weights))


def as_stored(call: KernelCall, work: KernelWork, engine: Engine) -> Iterator[KernelCall]:
    """A product of a prompt whose kernel reads stored weights as they are, and what adds its partial sums.

    Products that run row by row are those of scalar units, each with all of its weights.
    """
    if call.cause.name in engine.row_by_row:
        yield replace(call, kind=REDUCTION, work=replace(work, kind=REDUCTION, dtype=""), multiplies=False)
        return
    result = work.batch * work.m * work.n * WIDE
    further = result * (engine.partial_sums - 1)
    yield replace(call, work=replace(work, flops=work.flops / engine.stored_level, bytes=work.bytes + further))
    if further:
        moved = result * (engine.partial_sums + 1)
        yield replace(
            call, kind=REDUCTION, work=KernelWork(REDUCTION, flops=moved / WIDE, bytes=moved), multiplies=False
        )


def unfused(call: KernelCall, plan: Plan, value: Value) -> Iterator[KernelCall]:
    """Attention of a prompt without a fused kernel: products with every key that is read, masked or not, and scores.

    What kernels between the products move of each score is the engine's (`score_bytes`).
    """
    fused = not {plan.stack.kernels.attention, plan.kernels.attention} <= {*WRITES_SCORES}
    if fused or call.when == DECODE or call.work is None or call.work.kind.family != ATTENTION:
        yield call
        return
    group = plan.model.group_of(call.cause.unit)
    suffix = group.name if len(plan.model.groups) > 1 else ""
    seen = value(symbol("read", suffix)) / value(symbol("attended", suffix))
    flops = call.work.flops * float(seen)
    kind = KernelClass(ATTENTION, "math", FORWARD)
    yield replace(call, kind=kind, work=replace(call.work, kind=kind, flops=flops))
    scores = flops / (4 * group.attention.head_dim)
    moved = KernelWork(SOFTMAX, flops=5 * scores, bytes=plan.stack.engine.score_bytes * scores)
    yield replace(call, kind=SOFTMAX, work=moved, multiplies=False)


def as_decoded(call: KernelCall, plan: Plan) -> KernelCall:
    """A call of a pass that decodes, as the class that has prices of its own there: of products, of any few rows."""
    if call.work is None or not isinstance(call.kind, KernelClass):
        return call
    family = KERNEL_FAMILIES.get(call.kind.family)
    if family is None or family.decoding is None or not (call.when == DECODE or has_few_rows(call.work, plan)):
        return call
    kind = of_few_rows(replace(call.kind, pass_=DECODE), call, plan)
    return replace(call, kind=kind, work=replace(call.work, kind=kind))


def has_few_rows(work: KernelWork, plan: Plan) -> bool:
    """Whether prices of decoding are those of a product of so few rows; of groups, where no price is of their class."""
    if work.kind.family == GROUPED:
        return work.kind not in plan.accelerator.curves and work.group <= FEW_ROWS
    return work.kind.family == MATMUL and rows_of(work) <= FEW_ROWS


def rows_of(work: KernelWork) -> float:
    """Rows of a product, over its whole batch."""
    return float(work.batch * work.m)


def of_few_rows(kind: KernelClass, call: KernelCall, plan: Plan) -> KernelClass:
    """The class of a product that decodes: of stored weights, or of one row, where a device has a price for it."""
    if kind.family != MATMUL or call.work is None:
        return kind
    stored = plan.precision.weights.base
    specific = replace(kind, variant=ROW_FORMATS.get(kind.variant, kind.variant)) if rows_of(call.work) <= 1 else kind
    if stored in STORED_ONLY and call.cause.unit not in ENDS:
        specific = replace(kind, variant=STORED_FORMATS[dtypes.size(stored) < 1])
    return specific if specific in plan.accelerator.curves else kind


def converted(call: KernelCall, plan: Plan) -> Iterator[KernelCall]:
    """A call as an engine runs it whose activations are fp32, whose sums are fp16, or whose cache is copied to grow."""
    engine, work = plan.stack.engine, call.work
    if work is None or (call.when == DECODE and not engine.cache_copies):
        yield call
    elif call.when == DECODE:
        yield from grown(call, work, plan) if is_cached_attention(call.kind) else (call,)
    elif work.kind.family in (MATMUL, ATTENTION):
        if engine.fp16_sums:
            require_peak(plan, HALF, f"{plan.stack.title} multiplies prompts", "another `stack`")
        faster = plan.accelerator.fp16_sums / plan.accelerator.peak[HALF] if engine.fp16_sums else 0.0
        rate = max(1.0, faster) if work.dtype == HALF else 1.0
        yield replace(call, work=replace(work, flops=work.flops / rate))
        converts = engine.wide_activations and work.kind.family == MATMUL
        for elements in (work.k, work.n) if converts else ():
            moved = work.batch * work.m * elements * (WIDE + SINGLE)
            narrowed = KernelWork(CAST, flops=work.batch * work.m * elements, bytes=moved)
            yield replace(call, kind=CAST, work=narrowed, multiplies=False)
    else:
        as_wide = engine.wide_activations and work.kind.family in STREAMED
        yield replace(call, work=replace(work, bytes=work.bytes * SINGLE / WIDE)) if as_wide else call


def grown(call: KernelCall, work: KernelWork, plan: Plan) -> Iterator[KernelCall]:
    """Attention over a cache that is copied to take the new token, and whose heads may be written out for all queries.

    A copy reads and writes each byte; heads that are written out are read once and written as often as they are shared.
    """
    heads = plan.model.group_of(call.cause.unit).attention
    shared = heads.heads // heads.kv_heads if plan.stack.engine.repeats_heads else 1
    moved = 2 * work.bytes + ((1 + shared) * work.bytes if shared > 1 else 0.0)
    yield replace(call, kind=COPY, work=KernelWork(COPY, flops=0.0, bytes=moved), multiplies=False)
    yield replace(call, work=replace(work, bytes=shared * work.bytes))


def is_cached_attention(kind: object) -> bool:
    """Whether a kernel is attention of new tokens over what waits."""
    return isinstance(kind, KernelClass) and kind.family == ATTENTION and kind.pass_ == DECODE


# --- kernels limited by arithmetic, where prices of their class know bytes alone ---


def limited(row: KernelTime, call: KernelCall, plan: Plan) -> KernelTime:
    """The time of a kernel, no less than its arithmetic takes."""
    seconds = least(call, plan)
    return replace(row, seconds=seconds, bound="compute") if seconds > row.seconds else row


def least(call: KernelCall, plan: Plan) -> float:
    """Seconds of a call's arithmetic, where its engine says how it is done; else 0."""
    work, kind, engine = call.work, call.kind, plan.stack.engine
    if work is None or not isinstance(kind, KernelClass):
        return 0.0
    if kind == REDUCTION and call.cause.name in engine.row_by_row and call.when != DECODE:
        return float(work.flops) / (engine.vector_level * plan.accelerator.vector) if work.n > 1 else 0.0
    if engine.tile_rows and (kind.family, kind.pass_) == (ATTENTION, DECODE):
        return in_tiles(work, kind, plan, plan.model.group_of(call.cause.unit).attention)
    return 0.0


def in_tiles(work: KernelWork, kind: KernelClass, plan: Plan, heads: Attention) -> float:
    """Seconds of attention over a cache in whole tiles, at the rate that the same kernel has over whole prompts.

    Queries that share a head of the cache lie in one tile, unless heads were written out for each of them.
    """
    rows = plan.stack.engine.tile_rows
    queries = 1 if plan.stack.engine.repeats_heads else heads.heads // heads.kv_heads
    forward = KernelClass(ATTENTION, OVER_PROMPTS[kind.variant], FORWARD)
    curve = prices.curve(plan.accelerator, forward, head_dim=heads.head_dim) or prices.typical(forward)
    flops = float(work.flops) * -(-queries // rows) * rows / queries
    return flops / (curve.parameters["e"] * plan.accelerator.peak[work.dtype])
