"""Multi-token prediction: further layers, each of which predicts one more token ahead (DeepSeek-V3, section 2.2).

h' = M [norm(h); norm(embedding of the next token)], a layer, and a norm before the shared head, with a loss of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import sympy

from ledger.model import chunked_loss, components, cross_entropy
from ledger.model.dims import Dim
from ledger.model.elementwise import Pointwise
from ledger.model.norms import norm
from ledger.model.operations import Operation
from ledger.model.recompute import POLICIES, Kept
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import ELEMENTWISE
from ledger.spec.plan import Model, Recompute

UNIT = "multi_token"
LAYER = "predicting_layer"  # the region of all but norm, head and loss
TABLE = "embedding/tokens.weight"


def written(tape: Tape, hidden: Tensor, model: Model) -> None:
    """Writes one prediction, from the residual stream (batch seq d_model) to its loss."""
    inner = tape.inside(LAYER)
    tokens = components.token_rows(inner)
    stream = norm(inner, "hidden_norm/norm", hidden, model.norm)
    ahead = norm(inner, "token_norm/norm", tokens, model.norm)
    batch, seq, d_model = stream.dims
    two, result = Dim("two", sympy.Integer(2)), Dim("d_out", d_model.symbol)
    joining = inner.of_block("projection")
    both = joining.joined("projection/joined", [stream, ahead], (batch, seq, two, d_model))
    weight = joining.weight("projection/projection.weight", (result, two, d_model))
    einsum = "batch seq two d_model, d_out two d_model -> batch seq d_out"
    narrow = joining.contract("projection/projection", einsum, both, weight)
    x = inner.view(narrow, "batch seq d_model", "projection/stream")
    last = components.layer(inner, x, model.groups[-1], model)
    normed = components.final_norm(tape, last, model)
    if tape.kernels.loss in chunked_loss.KINDS:
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
    return POLICIES["components"](operations, Recompute(components=(*inside, chunked_loss.REGION)))


def owned(weights: Sequence[Tensor], model: Model) -> tuple[Tensor, ...]:
    """Weights of its own: embedding and head are the model's."""
    return tuple(weight for weight in weights if weight.name not in (TABLE, components.table_of(model)))


def added(steps: Sequence[Operation], hidden: Tensor, model: Model) -> Iterator[Operation]:
    """Its backward pass, whose gradients of what it shares are added to those that are there.

    The head's weight has a gradient from the model's own loss, the embedding (unless it is the same) gets its first
    here, and the residual stream has one from the final norm.
    """
    head, stream = gradient_name(components.table_of(model)), hidden.gradient
    for step in steps:
        outputs = tuple(_elsewhere(tensor, head) for tensor in step.outputs)
        yield replace(step, outputs=outputs)
        for whole, part in zip(step.outputs, outputs, strict=True):
            if part.name == f"{head}.part":
                yield Pointwise(f"{step.name}.shared", ELEMENTWISE, (whole, part), (part,))
    earlier = replace(stream, name=f"{stream.name}.earlier")
    whole = replace(stream, name=f"{stream.name}.whole")
    yield Pointwise("hidden.gradient.sum", ELEMENTWISE, (earlier, stream), (whole,))


def gradient_name(weight: str) -> str:
    """The name of a weight's gradient."""
    return f"{weight}.gradient"


def _elsewhere(tensor: Tensor, head: str) -> Tensor:
    """A gradient that another unit holds: a part of it, or all there is so far."""
    if tensor.name == head:
        return replace(tensor, name=f"{tensor.name}.part")
    return replace(tensor, view_of=f"{tensor.name}.held") if tensor.name == gradient_name(TABLE) else tensor
