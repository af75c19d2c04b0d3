"""Multi-token prediction: further layers, each of which predicts one more token ahead (DeepSeek-V3, section 2.2).

h' = M [norm(h); norm(embedding of the next token)], a layer, and a norm before the shared head, with a loss of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import sympy

from ledger.model import chunked_loss, components, cross_entropy
from ledger.model.dims import Dim
from ledger.model.elementwise import Pointwise
from ledger.model.modules import Module, Parameter
from ledger.model.norms import norm
from ledger.model.operations import Operation
from ledger.model.recompute import POLICIES, Kept
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import ELEMENTWISE
from ledger.spec.loss_chunks import CHUNKED_LOSSES
from ledger.spec.plan import Model, Recompute

if TYPE_CHECKING:
    from ledger.model.units import Unit

UNIT = "multi_token"
LAYER = "predicting_layer"  # the region of all but norm, head and loss


def written(tape: Tape, hidden: Tensor, model: Model) -> None:
    """Writes one prediction, from the residual stream (batch seq d_model) to its loss."""
    inner = tape.inside(LAYER)
    tokens = components.token_rows(inner)
    stream = norm(inner, Module("hidden_norm", "norm", of_layer=True), hidden, model.norm)
    ahead = norm(inner, Module("token_norm", "norm", of_layer=True), tokens, model.norm)
    batch, seq, d_model = stream.dims
    two, result = Dim("two", sympy.Integer(2)), Dim("d_out", d_model.symbol)
    joining = inner.of_block("projection")
    both = joining.joined("projection/joined", [stream, ahead], (batch, seq, two, d_model))
    einsum = "batch seq two d_model, d_out two d_model -> batch seq d_out"
    narrow = joining.linear(Module("projection", "projection"), einsum, both, sizes=(result, two))
    x = inner.view(narrow, "batch seq d_model", "projection/stream")
    last = components.layer(inner, x, model.groups[-1], model)
    normed = components.final_norm(tape, last, model)
    if tape.kernels.loss in CHUNKED_LOSSES:
        chunked_loss.written(tape, normed, model)
    else:
        cross_entropy.loss(tape, components.logits(tape, normed, model))


def kept(operations: Sequence[Operation], recompute: Recompute) -> Kept:
    """Checkpointing of whole layers is that of this one; its head and loss are as the model's own."""
    inside = {
        "selective": ("core",),
        "components": recompute.components,
        "none": (),
        "every": (),
        "layers": (),
    }.get(recompute.policy, (LAYER,))
    return POLICIES["components"](operations, replace(recompute, components=(*inside, chunked_loss.REGION)))


def owned(weights: Sequence[Tensor], model: Model) -> tuple[Tensor, ...]:
    """Weights of its own: embedding and head are the model's."""
    shared = (Parameter(components.TOKENS), Parameter(components.table_of(model)))
    return tuple(weight for weight in weights if weight.parameter not in shared)


def added(unit: Unit, hidden: Tensor, model: Model) -> Iterator[Operation]:
    """Its backward pass, whose gradients of what it shares are added to those that are there.

    The head's weight has a gradient from the model's own loss, the embedding (unless it is the same) gets its first
    here, and the residual stream has one from the final norm.
    """
    gradients = {weight.parameter: weight.gradient for weight in unit.weights}
    head, stream = gradients[Parameter(components.table_of(model))], hidden.gradient
    tokens, part_of_head = gradients[Parameter(components.TOKENS)], replace(head, name=f"{head.name}.part")
    for step in unit.backward:
        apart = part_of_head if not step.adds_to else head  # a product that adds its result makes none of its own
        outputs = tuple(
            apart if tensor.name == head.name else _held(tensor) if tensor.name == tokens.name else tensor
            for tensor in step.outputs
        )
        yield replace(step, outputs=outputs)
        for whole, part in zip(step.outputs, outputs, strict=True):
            if part.name == part_of_head.name:
                yield Pointwise(f"{step.name}.shared", ELEMENTWISE, (whole, part), (part,))
    earlier = replace(stream, name=f"{stream.name}.earlier", earlier=True)
    whole = replace(stream, name=f"{stream.name}.whole")
    yield Pointwise("hidden.gradient.sum", ELEMENTWISE, (earlier, stream), (whole,))


def _held(gradient: Tensor) -> Tensor:
    """A gradient in the storage of another unit, which has all there is of it so far."""
    return replace(gradient, view_of=f"{gradient.name}.held")
