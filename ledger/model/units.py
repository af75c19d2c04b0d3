"""The units of a model: what is checkpointed and scheduled as one, written for one device of a role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import sympy

from ledger.model import components, losses
from ledger.model.attention_cores import SharedResult
from ledger.model.backward import backward, is_frozen_weight, kernels, with_frozen_weights
from ledger.model.causes import BRIDGE, ENDS, INPUT, LOSS, OUTPUT, Purpose
from ledger.model.collectives import Collective, executed
from ledger.model.dims import dim, symbol
from ledger.model.exchanges import fuses, has_buffer
from ledger.model.layout import WHOLE, Layout, layout
from ledger.model.operations import ONE, Operation, differentiable, total
from ledger.model.product_frames import held_by_products, held_inputs, held_updates, scattered_first
from ledger.model.quantised import JOINED, weights_sent_quantised
from ledger.model.recompute import (
    POLICIES,
    LayerPart,
    SavedActivations,
    discarded_regions,
    hosted_layers,
    hosting,
    parts,
    read_in_backward,
    recomputed_layers,
    with_stored_activations,
)
from ledger.model.routing import balance, is_of_router
from ledger.model.row_maps import held_rows
from ledger.model.schedule import Role
from ledger.model.tape import OWN_SEQUENCE, Tape
from ledger.model.tensors import SOURCE_LENGTH, Side, Tensor
from ledger.model.unit import Unit
from ledger.spec.loss_chunks import CHUNKED_LOSSES
from ledger.spec.plan import Group, Kernels, Model, Plan, Precision, Recompute, Stack, Train
from ledger.spec.stack import UNSTATED_STACK

ENCODER = Side(length=SOURCE_LENGTH)


def compute_precision(plan: Plan) -> Precision:
    """The precision of operations: FSDP gathers weights in the compute dtype, so autocast has nothing left to cast.

    Of a weight that is gathered for each pass, no quantised copy stays; what is quantised alone is gathered so.
    """
    if plan.parallelism.zero < 3:
        return plan.precision
    recipe = plan.precision.matmul
    weights = "gathered" if recipe and recipe.weights in ("only", "gathered") else "anew"
    precision = replace(plan.precision, matmul=replace(recipe, weights=weights) if recipe else None)
    narrow = plan.precision.compute
    if not precision.autocast:
        return precision
    return replace(precision, autocast=False, weights=precision.weights.narrowed(narrow), activations=narrow)


def _kernels(operations: Sequence[Operation], kept: Sequence[Tensor], *, compiled: bool) -> tuple[Operation, ...]:
    """The kernels that run on the device, of operations that run something."""
    return tuple(kernels(tuple(executed(operations)), kept, compiled=compiled))


@dataclass(frozen=True)
class Builder:
    """Writes the units of a model under one precision, layout, choice of kernels and recompute policy."""

    model: Model
    precision: Precision
    layout: Layout
    kernels: Kernels
    recompute: Recompute
    train: Train = field(default_factory=Train)
    staged: bool = False  # cut into pipeline stages
    chunks: int = 1  # of layers on one device
    stack: Stack = UNSTATED_STACK
    adds_to: str = ""  # dtype of the gradients to which products of weights add theirs themselves
    summed_in: str = ""  # dtype of gradients that are summed over devices once micro-batches are through
    hosted: int | None = None  # layers of a chunk whose activations wait in host memory, from the first; 0: all
    packed: bool = False  # sequences hold several documents

    def tape(self, suffix: str = "", policy: str = "none", side: Side = OWN_SEQUENCE) -> Tape:
        """An empty tape for a group (`suffix`) whose layers a recompute policy treats so."""
        tape = Tape(self.precision, self.layout, self.kernels, suffix, self.train.lora, packed=self.packed)
        tape = replace(tape, stack=self.stack, side=side)
        lost = discarded_regions(self.recompute) if policy == "components" else frozenset[str]()
        return replace(tape, discarded=lost, stored=frozenset(rule.part for rule in self.precision.stored))

    def unit(self, name: str, count: sympy.Expr, tape: Tape, policy: str = "none", group: str = "") -> Unit:
        """The unit that the operations of a tape make up, with its backward pass and what it keeps for that."""
        left_out = is_frozen_weight(self.train, group or name)

        def still(weight: Tensor) -> bool:
            return weight.frozen or left_out(weight)

        operations = with_frozen_weights(tape.operations, still)
        narrow = weights_sent_quantised(operations)
        weights = tuple(
            replace(weight, frozen=still(weight), narrow=narrow.get(weight.name, ""))
            for weight in tape.weights.values()
        )
        rule = losses.saved_by_predictions if name == losses.UNIT else POLICIES[policy]
        kept = rule(operations, self.recompute)
        kept = replace(kept, saved=tuple(tensor for tensor in kept.saved if not tensor.kept_before))
        written = operations
        operations, kept = with_stored_activations(written, kept, self.precision.stored)
        gradients = [weight.gradient for weight in weights]
        compiled = self.stack.compiled and name not in ENDS  # each layer is compiled, and the loss by its own kernel
        back = backward(written, joined=JOINED[self.stack.projections])
        back = scattered_first(back, written) if self.stack.product_frames else back
        steps = _kernels(self._add_to_gradients(back, gradients), gradients, compiled=compiled)
        forward = _kernels(operations, kept.saved, compiled=compiled)
        segments = (replace(s, again=_kernels(s.again, s.rebuilt, compiled=compiled)) for s in kept.segments)
        kept = replace(kept, segments=tuple(segments))
        kept = read_in_backward(kept, steps) if compiled and kept.segments else kept
        if name == OUTPUT and self.stack.head_buffer and self.layout.regather:
            forward, steps = (tuple(map(_buffer_gather, operations)) for operations in (forward, steps))
        held_tensors = held_inputs(operations) if self.stack.held_inputs else ()
        if self.stack.product_frames:
            held_tensors += held_by_products(operations, steps, JOINED[self.stack.projections])
        held_tensors += (*held_rows(operations), *held_updates(operations))
        return Unit(name, group or name, count, forward, steps, kept, weights, written, frame_lifetimes=held_tensors)

    def _add_to_gradients(self, steps: Iterable[Operation], gradients: Sequence[Tensor]) -> tuple[Operation, ...]:
        """Products that give gradients of weights add to those that are there, whose sums have their own dtype."""
        names = {gradient.name for gradient in gradients}

        def adding(step: Operation) -> Operation:
            if step.purpose is Purpose.WEIGHT_GRADIENT and step.output.name in names and not is_of_router(step.output):
                return replace(step, adds_to=self.adds_to)
            if step.purpose is Purpose.GRADIENT_SUM and self.summed_in:
                inputs, outputs = (
                    tuple(replace(tensor, dtype=self.summed_in) for tensor in tensors)
                    for tensors in (step.inputs, step.outputs)
                )
                return replace(step, inputs=inputs, outputs=outputs)
            return step

        return tuple(map(adding, steps))

    def entry(self, before: Unit | None = None, side: Side = OWN_SEQUENCE) -> Tensor:
        """The residual stream as a layer receives it from the unit `before`, frozen where no gradient flows into that.

        Of a model of blocks it is what that unit gives, which may save it for itself.
        """
        still = before is not None and has_no_gradient(before)
        if before is None or not self.model.of_blocks:
            tape = self.tape(side=side)
            stream = components.embedding(tape, self.model).on(self.layout.stream, side.named("stream"))
            return replace(stream, frozen=still)
        result = before.written[-1].output
        return replace(result, name="stream", view_of="", frozen=still, kept_before=saves_its_result(before))

    def input(self) -> Unit:
        """Tokens to residual stream; of a model that has an encoder, those that it reads."""
        tape = self.tape(side=ENCODER if self.model.encoder_groups else OWN_SEQUENCE)
        components.embedding(tape, self.model)
        return self.unit(INPUT, ONE, tape)

    def bridge(self, before: Unit | None) -> Unit:
        """The unit that hands an encoder's result to the layers that attend to it, and embeds the decoder's tokens."""
        tape, groups = self.tape(), [group for group in self.model.groups if group.cross_attention]
        readers = total(symbol("layers", self.suffix(group)) for group in groups)
        components.encoded(replace(tape, side=ENCODER), self.entry(before, ENCODER), self.model, readers)
        components.embedding(tape, self.model)
        return self.unit(BRIDGE, ONE, tape)

    def output(self, before: Unit | None) -> tuple[Unit, ...]:
        """Residual stream to logits, and logits to loss; one unit where both go part by part."""
        tape, after = self.tape(), self.tape()
        if self.model.predictions:  # they look up tokens, whose table the last stage therefore holds
            tape.weight(components.TOKENS, "vocab d_model")
        if self.kernels.loss in CHUNKED_LOSSES:
            hidden = components.into_head(tape, self.entry(before), self.model)
            losses.write_chunked_loss(tape, hidden, self.model)
            return (self.unit(OUTPUT, ONE, tape, "loss"),)
        losses.loss(after, components.head(tape, self.entry(before), self.model))
        for group in self.model.groups:
            if group.mlp.router.auxiliary_loss:
                balance(replace(after, suffix=self.suffix(group)), group)
        return self.unit(OUTPUT, ONE, tape), self.unit(LOSS, ONE, after)

    def suffix(self, group: Group) -> str:
        """The suffix that tells the symbols of a group from another's."""
        return group.name if len(self.model.groups) > 1 else ""

    def predictions(self, before: Unit | None) -> Unit:
        """Prediction of further tokens, which the last stage runs beside its head."""
        group = self.model.groups[-1]
        tape, hidden = self.tape(self.suffix(group), self.recompute.policy), self.entry(before)
        losses.write_further_tokens(tape, hidden, self.model)
        unit = self.unit(losses.UNIT, symbol("predictions"), tape)
        steps = tuple(losses.backward_of_predictions(unit, hidden, self.model))
        return replace(unit, backward=steps, weights=losses.own_weights(unit.weights, self.model))

    def layers(self, role: Role, before: Unit | None) -> Iterator[Unit]:
        """One layer of each group that the role holds; several units where a policy treats its layers differently.

        Where no gradient flows into the first layer, but does out of it, that layer is a unit of its own; so is a block
        whose input is saved by the unit before, where blocks of its group do not save their results, or the reverse.
        Between an encoder and a decoder stands what hands the result of the one to the other.
        """
        again = recomputed_layers(self.recompute, role.layers, self.chunks)
        leave = hosted_layers(self.hosted, role.layers, self.chunks)
        side = ENCODER if self.model.encoder_groups else OWN_SEQUENCE
        for group, depth, redone_depth, hosted_depth in zip(self.model.groups, role.layers, again, leave, strict=True):
            if side.is_source and not group.encodes_source:
                before = self.bridge(before)
                yield before
                side = Side(encoded=output_for_other_units(before))
            group_parts = parts(self.recompute, self.suffix(group), depth, redone_depth, self.chunks) if depth else ()
            for part in hosting(group_parts, self.suffix(group), hosted_depth):
                for unit in self._units_of_part(group, part, side, before):
                    yield unit
                    before = unit

    def _units_of_part(self, group: Group, part: LayerPart, side: Side, before: Unit | None) -> Iterator[Unit]:
        """The layers of a part as one unit; or the first of them apart, where it makes or begins what others get."""
        unit = self._layer_unit(group, part, side, before)
        makes = output_for_other_units(unit) is not None
        begins = before is not None and has_no_gradient(before) and not has_no_gradient(unit)
        blocks = group.block is not None and part.depth > 1
        changes = blocks and before is not None and saves_its_result(before) != saves_its_result(unit)
        if not (makes or begins or changes):
            yield unit
            return
        first = self._layer_unit(group, part.with_first_split(1), side, before)
        yield first
        if part.depth > 1:
            yield self._layer_unit(
                group, part.with_first_split(0), replace(side, bias=output_for_other_units(first)), first
            )

    def _layer_unit(self, group: Group, part: LayerPart, side: Side, before: Unit | None) -> Unit:
        suffix = self.suffix(group)
        tape = self.tape(suffix, part.policy, side)
        components.layer(tape, self.entry(before, replace(side, encoded=None)), group, self.model)
        unit = self.unit(f"{group.name}{part.label}", part.count, tape, part.policy, group.name)
        return replace(
            unit, saving=replace(unit.saving, further_layers=part.rebuilt_layers), suffix=suffix, hosted=part.hosted
        )


def _buffer_gather(operation: Operation) -> Operation:
    """A sequence that is gathered over the devices that share a layer, in a buffer that lasts."""
    if isinstance(operation, Collective) and (operation.collective, operation.axis) == ("all_gather", "tensor"):
        return replace(operation, buffered=True)
    return operation


def output_for_other_units(unit: Unit) -> Tensor | None:
    """The tensor that a unit makes for layers of other units, if any."""
    return next((operation.output for operation in unit.written if isinstance(operation, SharedResult)), None)


def has_no_gradient(unit: Unit) -> bool:
    """Whether no gradient flows into a unit's result."""
    return not differentiable(unit.written[-1].output)


def saves_its_result(unit: Unit) -> bool:
    """Whether what a unit gives is among what it saves for its own backward pass."""
    return unit.written[-1].output.storage in {tensor.storage for tensor in unit.saving.saved}


def builder(plan: Plan) -> Builder:
    """The builder of a plan as it runs."""
    return Builder(
        plan.model,
        compute_precision(plan),
        replace(layout(plan.parallelism), crowded=plan.assumptions.expert_imbalance > 1),
        plan.kernels,
        replace(
            plan.recompute,
            rebuilds_to_end=plan.stack.checkpoint != "early_stop",
            reentrant=plan.stack.checkpoint == "reentrant",
            joined_parts=JOINED[plan.stack.projections],
            compiled=plan.stack.compiled,
        ),
        plan.train,
        staged=plan.parallelism.pipeline > 1,
        chunks=plan.parallelism.interleave,
        stack=plan.stack,
        adds_to=plan.precision.gradients if fuses(plan) else "",
        summed_in=plan.precision.gradients if has_buffer(plan) and plan.stack.tensor_parallel == "explicit" else "",
        hosted=plan.parallelism.offload.layers if "activations" in plan.parallelism.offload else None,
        packed=plan.run.documents is not None,
    )


def single_device_builder(plan: Plan) -> Builder:
    """The builder of a plan on one device without recompute: what PyTorch's counters are compared with."""
    packed = plan.run.documents is not None
    return Builder(plan.model, plan.precision, WHOLE, plan.kernels, Recompute(), plan.train, packed=packed)


def units(build: Builder, role: Role) -> tuple[Unit, ...]:
    """The units of one role, in the order of the forward pass."""
    if build.model.bare:
        return (_bare_unit(build),)
    result: list[Unit] = [build.input()] if role.first else []
    result.extend(build.layers(role, result[0] if result else None))
    if role.last and build.model.predictions:
        result.append(build.predictions(result[-1] if result else None))
    return (*result, *build.output(result[-1] if result else None)) if role.last else tuple(result)


def _bare_unit(build: Builder) -> Unit:
    """A count of parameters as one weight, cut over every axis that cuts a model."""
    split = tuple(("parameters", axis) for axis in (*build.layout.cuts, *(("pipeline",) if build.staged else ())))
    weight = Tensor("model/parameters", (dim("parameters"),), build.precision.weights.base, "weight", split)
    return Unit("model", "model", ONE, (), (), SavedActivations(()), (weight,))
