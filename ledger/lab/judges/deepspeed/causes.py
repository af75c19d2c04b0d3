"""Named causes for which DeepSpeed holds other bytes than the ledger says, each worked out from the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import sympy

from ledger.books import compile_plan
from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.memory.moments import Moments
from ledger.books.memory.reduction_buffer import ReductionBuffer, gradients_in_order
from ledger.books.memory.steps import LiveStep, tensors, unit_steps
from ledger.books.memory.timeline import BACKWARD, Moment
from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.deepspeed.flat_weights import BEFORE, OF_REPLICAS, FlatWeights, call_sizes, flat_weights
from ledger.lab.verification import predicted
from ledger.lab.verification.causes import (
    AFTER,
    INT64_BYTES,
    LOSS,
    OPTIMIZER,
    SCALAR,
    StepMoment,
    at_the_loss,
    frequencies,
)
from ledger.model import dtypes
from ledger.model.causes import ENDS
from ledger.model.schedule import Role, micro_batches, roles
from ledger.model.units import compute_precision
from ledger.spec.plan import Plan

STATIC, INPUT, HEAD, END = "static", "forward/input", "backward/loss", "backward/input"
LABELS = "labels padded and shifted"
DOUBLE, SINGLE = 8, 4  # bytes of an fp64, in which norms are taken, and of an fp32, in which weights are updated


@dataclass(frozen=True)
class FlatInstant(StepMoment):
    """A moment of the step of a rank that has a stretch of all weights."""

    @property
    def zero(self) -> int:
        """The stage of ZeRO."""
        return self.plan.parallelism.zero

    @cached_property
    def flat(self) -> FlatWeights:
        """All weights in one stretch, as a rank of ZeRO 1 and 2 cuts it."""
        return flat_weights(self.plan)

    @property
    def shares(self) -> bool:
        """Whether a rank keeps the gradients of a stretch of flat weights, and no others, on the device."""
        return self.zero in (1, 2) and not self.hosted

    @property
    def hosted(self) -> bool:
        """Whether the host updates, so that what a rank keeps of gradients goes there as soon as it is reduced."""
        return "optimizer" in self.plan.parallelism.offload

    @property
    def several(self) -> bool:
        """Whether a step has more than one micro-batch."""
        return int(micro_batches(self.plan)) > 1

    @property
    def rebuilt(self) -> bool:
        """Whether layers are rebuilt."""
        return self.plan.recompute.policy == "full"

    @property
    def gradient(self) -> int:
        """Bytes of a gradient's element."""
        return int(dtypes.size(self.plan.precision.gradients))

    @property
    def stream(self) -> int:
        """Bytes of the residual stream of a micro-batch."""
        return int(self.tokens * self.plan.model.d_model * dtypes.size(compute_precision(self.plan).activations))

    @property
    def passes(self) -> bool:
        """Whether forward or backward runs, or forward is over."""
        return self.forward or self.backward or self.moment == AFTER

    @property
    def in_forward_layers(self) -> bool:
        """Whether a layer runs forward."""
        return self.forward and self.moment not in (INPUT, LOSS)

    @property
    def in_backward_layers(self) -> bool:
        """Whether a layer runs backward."""
        return self.backward and self.moment not in (HEAD, END)

    @property
    def layer(self) -> int:
        """The layer that backward visits, of those of one name the first."""
        layers = sum(group.repeat for group in self.plan.model.groups)
        if self.moment == END:
            return BEFORE
        return 0 if self.moment.endswith("/end") else layers - 2 if self.moment.endswith("/inner") else layers - 1


def causes(plan: Plan, _: Role, moment: str) -> Iterator[KnownDifference]:
    """Each named cause with its bytes of found minus predicted at one moment."""
    at = FlatInstant(plan, moment)
    for name, amount in CAUSES.items():
        yield KnownDifference(name, amount(at))


def _token_ids(at: FlatInstant) -> int:
    """The ledger has them all the time; each micro-batch brings its own."""
    return -INT64_BYTES * at.tokens if at.moment in (STATIC, OPTIMIZER) else 0


def _positions(at: FlatInstant) -> int:
    """A rotary embedding keeps two lists of frequencies; a checkpoint keeps the positions that it was given."""
    frequency_bytes = frequencies(at.plan.model)
    keeps_positions = frequency_bytes and at.rebuilt and at.passes and at.moment not in (INPUT, END)
    return frequency_bytes + (INT64_BYTES * at.length if keeps_positions else 0)


def _labels(at: FlatInstant) -> int:
    return sum(cause.amount for cause in at_the_loss(at.plan, at.moment) if cause.name == LABELS)


def _numbers(at: FlatInstant) -> int:
    """Of what a layer saves, FlashAttention's unused offset; and the weight of the mean of the loss."""
    if at.moment not in (AFTER, LOSS, HEAD):
        return 0
    saves_offset = not at.rebuilt and at.plan.kernels.attention == "flash"
    layers = sum(group.repeat for group in at.plan.model.groups) * saves_offset
    return -INT64_BYTES * layers - SCALAR * (at.moment == AFTER)


def _embedded(at: FlatInstant) -> int:
    """Where nothing saves the embedded tokens, transformers has them in a variable until the last layer returns.

    An eager norm saves its input in fp32. LlamaModel.forward; of GPT2Model.forward there are the positions as well.
    """
    if at.plan.model.learned_positions:
        rows = at.stream // at.plan.run.micro_batch
        ids = INT64_BYTES * at.length if at.moment == INPUT else 0
        return at.stream + rows + ids if at.forward and at.moment != LOSS else 0
    saved = at.plan.kernels.norm == "fused" or at.rebuilt or at.plan.model.norm.kind != "rms"
    return 0 if saved or not at.in_forward_layers or at.moment.endswith("/start") else at.stream


def _attention_result(at: FlatInstant) -> int:
    """GPT2Block.forward has the result of attention in a variable, though only its sum with the stream is read on."""
    return at.stream if at.plan.model.learned_positions and at.in_forward_layers and not at.rebuilt else 0


def _whole_gradients(at: FlatInstant) -> int:
    """A rank keeps the gradients of every weight that its stretch has a part of (copy_grads_in_partition).

    ZeRO 2 has them from the first micro-batch on where more follow.
    """
    in_memory = at.moment == OPTIMIZER or (at.several and at.zero == 2 and at.passes)
    return at.gradient * (at.flat.rank_elements - at.flat.even_shares()) if at.shares and in_memory else 0


def _norm(at: FlatInstant) -> int:
    """The first stretch may be of few weights, or of one (get_grad_norm_direct)."""
    if at.moment != OPTIMIZER or not at.shares:
        return 0
    copies = SINGLE + at.gradient
    even = max(DOUBLE * -(-max(at.flat.sizes) // at.flat.ranks), copies * at.flat.even_shares())
    return max(DOUBLE * at.flat.largest_part, copies * at.flat.share) - even


def _persistent(at: FlatInstant) -> int:
    """ZeRO 3: whole between steps as well, where the ledger has what the update is without as not lasting."""
    small = (size for size in at.flat.sizes if size <= at.plan.stack.persistent)
    return at.gradient * sum(small) if at.zero == 3 and at.moment == STATIC else 0


def _share_comes_last(at: FlatInstant) -> int:
    """The first stretch begins with the embedding, which backward reaches last; the ledger has shares layer by layer.

    Once the first gradient of it is there, there is room for all of them, also where earlier micro-batches left some.
    """
    if not (at.in_backward_layers or at.moment == END) or at.zero != 2 or at.hosted:
        return 0
    judge_elements = at.flat.rank_elements if at.flat.last_touched > at.layer else 0
    ledger_elements = at.flat.even_shares(at.layer + 1) + -(-at.flat.tied // at.flat.ranks)
    return at.gradient * (judge_elements - (0 if at.several else ledger_elements))


def _bucket(at: FlatInstant) -> int:
    """Each bucket holds as many gradients as fit."""
    if at.zero != 2 or not at.in_backward_layers:
        return 0
    return beyond_even_filling(at.plan, at.flat).get(at.moment, 0)


def _last_buckets(at: FlatInstant) -> int:
    """What is reduced at the end of backward, beyond a full buffer or the embedding beside its gradient."""
    if at.moment != END or at.zero == 3:
        return 0
    flat, most = at.flat, at.plan.stack.reduction_buffer
    ledger_elements = max(most, flat.sizes[0])
    if at.zero == 2:
        ledger_elements += flat.sizes[0] + flat.tied
    else:
        summed = at.several
        ledger_elements += flat.parameters if summed else flat.parameters - flat.before + flat.sizes[0] + flat.tied
    judge_elements = AT_THE_END[at.zero](flat, most)
    if at.hosted:  # the norm of what goes to the host is taken before it goes
        gradients = flat.parameters if at.zero == 1 else flat.sizes[0]
        judge_elements = max(judge_elements, gradients + DOUBLE // at.gradient * flat.largest_part)
    return at.gradient * (judge_elements - ledger_elements)


def _replicas_at_the_end(flat: FlatWeights, _: int) -> int:
    """The largest bucket, each of which is more than a buffer or what is left (DeepSpeedEngine.allreduce_no_retain)."""
    return flat.parameters + max(call_sizes(flat.sizes, OF_REPLICAS), default=0)


def _zero_1_at_the_end(flat: FlatWeights, most: int) -> int:
    """What is in the buffer is no gradient of its own any more; the first bucket makes room for this rank's share."""
    fullest = 2 * flat.tied  # the sum of a tied weight's two gradients is written beside them
    gone = rank_elements = 0
    for bucket in flat.buckets(range(len(flat.sizes)), most):
        size = flat.elements(bucket)
        gone += size if size <= most else 0
        fullest = max(fullest, rank_elements + size - gone)
        rank_elements = flat.rank_elements
        gone += 0 if size <= most else size
        fullest = max(fullest, rank_elements - gone + (size if size > most else 0))
    return flat.parameters + fullest


def _zero_2_at_the_end(flat: FlatWeights, most: int) -> int:
    """The embedding's gradient, beside the bucket that had no room for it; then its own bucket, and its share."""
    before, last = [[], *flat.buckets(flat.backward, most)][-2:]
    size = flat.elements(last)
    single = len(last) == 1
    fresh = size if size > most else 0
    rank_elements = flat.rank_elements if flat.last_touched == BEFORE else 0
    return max(flat.sizes[0] + (flat.elements(before) if single else 0), fresh + size, fresh + rank_elements)


AT_THE_END = {0: _replicas_at_the_end, 1: _zero_1_at_the_end, 2: _zero_2_at_the_end}
CAUSES: Mapping[str, Callable[[FlatInstant], int]] = {
    "token ids, which come with a micro-batch": _token_ids,
    "positions and rotary frequencies": _positions,
    LABELS: _labels,
    "single numbers, which are not counted": _numbers,
    "the embedded tokens, which their caller's frame holds": _embedded,
    "the result of attention, which its caller's frame holds": _attention_result,
    "whole gradients of weights of which a rank has a part": _whole_gradients,
    "the norm of the largest part of a weight": _norm,
    "small weights, which are whole as well": _persistent,
    "its share of gradients, which backward reaches last": _share_comes_last,
    "what a bucket holds when the next gradient does not fit": _bucket,
    "what is reduced when backward is over": _last_buckets,
}


# --- the fullest steps of backward, bucket by bucket ---


def beyond_even_filling(plan: Plan, flat: FlatWeights) -> Mapping[str, int]:
    """By moment, bytes of the fullest instant of backward through layers beyond the ledger's."""
    (book,) = compile_roles(plan, roles(plan))
    (role,) = compile_plan(plan).roles
    peaks = BucketPeaks(plan, book, flat)
    more = {point.name: peaks.more(point) for point in book.timeline.points if peaks.in_layers(point)}
    exact = [replace(moment, parts={**moment.parts, "more": more.get(moment.name, 0)}) for moment in role.moments]
    before, after = predicted.moments(book, role.moments), predicted.moments(book, exact)
    return {name: after[name] - before[name] for name in before}


@dataclass(frozen=True)
class BucketPeaks:
    """The steps of backward at which buckets are reduced."""

    plan: Plan
    compiled_role: CompiledRole
    flat: FlatWeights

    def in_layers(self, point: Moment) -> bool:
        """Whether backward visits a layer."""
        return point.phase == BACKWARD and point.unit not in ENDS

    def more(self, point: Moment) -> int:
        """Bytes of a moment's fullest step beyond those of even filling."""
        unit, alive = self.moments.units[point.unit], self.moments.live_steps(point)
        plain = list(unit_steps(unit, alive))
        even = self.buffer.steps(point, unit, self.moments.written(point), plain)
        return self._fullest((*plain, *self._weight_by_weight(point))) - self._fullest(even)

    @cached_property
    def moments(self) -> Moments:
        """The moments of the role."""
        return Moments(self.compiled_role.program, self.plan, self.compiled_role.timeline)

    @cached_property
    def buffer(self) -> ReductionBuffer:
        """The buffer, as the ledger fills it."""
        return ReductionBuffer(self.compiled_role.program, self.plan, self.compiled_role.timeline)

    @cached_property
    def emptied(self) -> Mapping[tuple[str, int], int]:
        """Elements that are reduced when the gradient of a weight finds no room, by its name and layer."""
        buckets = self.flat.buckets(self.flat.backward, self.plan.stack.reduction_buffer)
        overflowing = [self.flat.weights[bucket[0]] for bucket in buckets[1:]]
        pairs = zip(overflowing, buckets, strict=False)
        return {(weight.name, weight.layer): self.flat.elements(before) for weight, before in pairs}

    def _fullest(self, steps: Iterable[LiveStep]) -> int:
        return max(int(step.bytes(self.compiled_role.value)) for step in steps)

    def _weight_by_weight(self, point: Moment) -> Iterator[LiveStep]:
        """The steps at which a gradient finds no room, with the copy of what is there."""
        unit, value = self.moments.units[point.unit], self.compiled_role.value
        counts = {
            program_unit.name: int(value(program_unit.count)) for program_unit in self.compiled_role.program.units
        }
        layers = [name for name in counts if name not in ENDS]
        earlier = sum(counts[name] for name in layers[: layers.index(unit.name)])
        layer = earlier + counts[unit.name] - int(value(point.passed_layers[unit.name])) - 1
        for weight, step in gradients_in_order(unit, self.moments.live_steps(point)):
            if elements := self.emptied.get((f"{unit.name}/{weight.name}", layer)):
                copied = self.buffer.copy(sympy.Integer(elements))
                yield LiveStep("a full buffer is reduced", (*tensors(unit, step), copied))
